"""Group and instance normalization as a pipeline step. kernels/reference/reduce/channels.py says what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives import sizes
from ...primitives.errors import ArgumentError
from ...primitives.kernel import Affine, ArgSpec, Axis, Follow, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .rows import REAL, scratch_for

SHORT = 16  # a channel with fewer elements shares its vectors with its neighbours


@stored_as("group_normalize")
@dataclass(frozen=True)
class GroupNormalize:
    """y = (x - mean) / sqrt(variance + epsilon) * scale[channel] + bias[channel] over groups of `each` channels.

    The data is (N, C, ..); each = 1 is instance normalization.
    """

    dtype: str = "f32"
    rank: int = 4
    each: int = 1

    def __post_init__(self) -> None:
        checks.one_of("group_normalize", "dtype", self.dtype, REAL)
        check_rank(self.rank, "group_normalize")
        if self.rank < 2 or self.each < 1:
            raise ArgumentError(
                f"group_normalize: rank {self.rank} and {self.each} channels a group; (N, C, ..) and 1 at least work"
            )

    @property
    def name(self) -> str:
        return f"group_normalize_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape = tuple(AXES[d].upper() for d in range(self.rank))
        follows: tuple[Follow, ...] = ("i", Affine("j", self.each, 0, self.each - 1), *(None,) * (self.rank - 2))
        return (
            ArgSpec("x", self.dtype, shape=shape, follows=follows),
            ArgSpec("scale", "f32", shape=("J",)),
            ArgSpec("bias", "f32", shape=("J",)),
            ArgSpec("epsilon", "f32", shape=()),
            ArgSpec("y", self.dtype, "write", shape=shape, follows=follows),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("i", "I"), Axis("j", sizes.floordiv("J", self.each))))

    def execute(self, ctx: Any) -> None:
        x, y = self._grouped(ctx.read("x")), self._grouped(ctx.write("y"))
        scale, bias = (ctx.read(slot).reshape(x.shape[1:3]) for slot in ("scale", "bias"))
        elements = 1
        for n in x.shape[3:]:
            elements *= int(n)
        scratch = scratch_for(ctx, x.ndim - 2, [x, y], spare=8 * self.each * elements if elements < SHORT else 0)
        ctx.sweep(self, x, scale, bias, ctx.read("epsilon"), y, scratch)

    def _grouped(self, x: Any) -> Any:
        """(N, groups, channels of a group, ..)."""
        if x.shape[1] % self.each:
            raise ArgumentError(f"group_normalize: {x.shape[1]} channels in groups of {self.each}; a multiple works")
        return x.reshape((x.shape[0], x.shape[1] // self.each, self.each, *x.shape[2:]))
