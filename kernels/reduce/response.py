"""Local response normalization as a pipeline step. kernels/reference/reduce/channels.py says what it computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.kernel import Affine, ArgSpec, Axis, Follow, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .rows import REAL, is_run

CHUNK = 1024  # elements whose sums stay in the nearest cache


@stored_as("local_response")
@dataclass(frozen=True)
class LocalResponse:
    """y = x / (bias + alpha * sum of x**2 over `size` channels around) ** beta; the data is (N, C, ..)."""

    dtype: str = "f32"
    rank: int = 4
    size: int = 5

    def __post_init__(self) -> None:
        checks.one_of("local_response", "dtype", self.dtype, REAL)
        check_rank(self.rank, "local_response")
        if self.rank < 2 or self.size < 1:
            raise ArgumentError(
                f"local_response: rank {self.rank} and {self.size} channels; (N, C, ..) and 1 channel at least work"
            )

    @property
    def name(self) -> str:
        return f"local_response_{self.dtype}"

    @property
    def before(self) -> int:
        """Channels before the one in the middle; of an even number the middle has one more behind it."""
        return (self.size - 1) // 2

    def signature(self) -> tuple[ArgSpec, ...]:
        shape = tuple(AXES[d].upper() for d in range(self.rank))
        rest: tuple[Follow, ...] = (None,) * (self.rank - 2)
        around = Affine("j", 1, self.before, self.size - 1 - self.before)
        return (
            ArgSpec("x", self.dtype, shape=shape, follows=("i", around, *rest)),
            *(ArgSpec(slot, "f32", shape=()) for slot in ("alpha", "beta", "bias")),
            ArgSpec("y", self.dtype, "write", shape=shape, follows=("i", "j", *rest)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("i", "I"), Axis("j", "J")))

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        kernel = self
        if self.rank != 3 and all(is_run(v, self.rank - 2) for v in (x, y)):
            n = 1
            for size in x.shape[2:]:
                n *= int(size)
            x, y = (v.reshape((*v.shape[:2], n)) for v in (x, y))
            kernel = replace(self, rank=3)
        numbers = [ctx.read(slot) for slot in ("alpha", "beta", "bias")]
        ctx.sweep(kernel, x, *numbers, y)
