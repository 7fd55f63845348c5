"""The kernel contract: what a step says of itself, so that an executor can run one that it has never seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, TypeVar, runtime_checkable

from . import dtypes
from .errors import LayoutError, PipelineError
from .sizes import Size, SizeLike, size

T = TypeVar("T")
Access = str  # "read", "write" or "update" (state: read and written in place)
ACCESS = ("read", "write", "update")


@dataclass(frozen=True)
class Affine:
    """The interval of an operand's dimension that a range [r0, r1) of an axis needs.

    The interval is [step * r0 - before, step * (r1 - 1) + 1 + after), clipped to the dimension: a convolution of
    width k, stride s and left padding p reads with step = s, before = p, after = k - 1 - p.
    """

    axis: str
    step: int = 1
    before: int = 0
    after: int = 0

    def interval(self, r0: int, r1: int, extent: int) -> tuple[int, int]:
        """The half-open interval for a non-empty range, clipped to [0, extent)."""
        lo = self.step * r0 - self.before
        hi = self.step * (r1 - 1) + 1 + self.after
        return max(0, min(lo, extent)), max(0, min(hi, extent))


Follow = str | Affine | None  # an axis one to one, an affine interval of it, or the whole dimension


@dataclass(frozen=True)
class Axis:
    """One axis of a kernel's index space.

    name      lower-case letters; a tile function takes `{name}0, {name}1`
    extent    its size, an expression of the size names that the kernel's ArgSpecs use
    split     whether ranges of it may run separately, in any order and at once
    multiple  where a cut may be made: a multiple of this (the last range may be shorter)
    in_turn   each place of it needs what all of the ones before left: where other axes are cut, one follows the other
    """

    name: str
    extent: SizeLike
    split: bool = True
    multiple: int = 1
    in_turn: bool = False

    def size(self) -> int | Size:
        """The extent as a number, or as a size that is known when the plan is bound."""
        return size(self.extent)


@dataclass(frozen=True)
class IndexSpace:
    """The named axes over which a compiled kernel's work is cut, and what a cut costs.

    scratch   bytes of scratch that one running tile needs, as a function of the evaluated sizes, or an int
    """

    axes: tuple[Axis, ...]
    scratch: int | Callable[[Mapping[str, int]], int] = 0

    def __post_init__(self) -> None:
        seen = [axis.name for axis in self.axes]
        if len(set(seen)) != len(seen):
            raise PipelineError(f"an index space names its axes once each, not {', '.join(seen)}")
        for axis in self.axes:
            if axis.multiple < 1:
                raise PipelineError(f"axis {axis.name!r} is cut at multiples of {axis.multiple}; at least 1 is needed")


@dataclass(frozen=True)
class ArgSpec:
    """One slot of a kernel.

    slot      its name, used by `ctx.read`, `ctx.write` and as the keyword of `Pipeline.add`
    dtype     the data type's name; several names (any of them); None (any); "=x" (that of slot x); "shape" (s64, one
              dimension); or "function", a Python function
    access    "read", "write", or "update" (read and written in place: a state)
    shape     sizes, one per dimension; names are the kernel's own and are matched over all slots. "..." first
              stands for leading dimensions that are passed over. None: any shape; for a written slot, that of the
              slots read, which must then agree
    axes      the axis letters that the operand must have where it has any, e.g. "NHWC"; None: any
    align     bytes that the first element must be aligned to
    strides   "any", or "rows" (the innermost dimension contiguous), or "contiguous"
    optional  whether the slot may stay empty
    follows   per dimension (from the last): the axis of the index space that it follows; None: needed whole
    in_place  for a written slot: the read slots whose memory it may take over exactly (element-wise kernels)
    doc       one line for people
    """

    slot: str
    dtype: str | tuple[str, ...] | None
    access: Access = "read"
    shape: tuple[SizeLike, ...] | None = field(default=None, kw_only=True)
    axes: str | None = field(default=None, kw_only=True)
    align: int = field(default=1, kw_only=True)
    strides: str = field(default="any", kw_only=True)
    optional: bool = field(default=False, kw_only=True)
    follows: tuple[Follow, ...] | None = field(default=None, kw_only=True)
    in_place: tuple[str, ...] = field(default=(), kw_only=True)
    doc: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.access not in ACCESS:
            raise PipelineError(f"slot {self.slot!r} has access {self.access!r}; it is one of {', '.join(ACCESS)}")
        if self.strides not in ("any", "rows", "contiguous"):
            raise LayoutError(f"slot {self.slot!r} asks for strides {self.strides!r}; any, rows or contiguous")
        if not self.slot.isidentifier():
            raise PipelineError(f"slot {self.slot!r} is not a name; use letters, digits and underscores")
        if isinstance(self.dtype, str) and self.dtype not in ("function", "shape") and self.dtype[:1] != "=":
            object.__setattr__(self, "dtype", dtypes.get(self.dtype).name)
        elif isinstance(self.dtype, (tuple, list)):
            object.__setattr__(self, "dtype", tuple(dtypes.get(d).name for d in self.dtype))
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(x if x == "..." else size(x) for x in self.shape))

    @property
    def reads(self) -> bool:
        """Whether the kernel sees what is in the buffer before it runs."""
        return self.access in ("read", "update")

    @property
    def writes(self) -> bool:
        """Whether the kernel changes the buffer."""
        return self.access in ("write", "update")


@runtime_checkable
class Kernel(Protocol):
    """A stateless step. Any object with these three members is one; nothing has to be inherited.

    A compiled kernel also has `index_space()`, which returns an IndexSpace; a kernel without one runs whole. A kernel
    whose output shapes no ArgSpec can express has `infer(shapes, values)`, which returns {slot: shape}.
    """

    @property
    def name(self) -> str: ...

    def signature(self) -> tuple[ArgSpec, ...]: ...

    def execute(self, ctx: Any) -> None: ...


def _once(about: Callable[[Kernel], T]) -> Callable[[Kernel], T]:
    """What a kernel says of itself, asked once of each frozen one: it can say nothing else the next time."""
    name = f"_{about.__name__}_once"

    @wraps(about)
    def asked(kernel: Kernel) -> T:
        kept: T
        if name in getattr(kernel, "__dict__", ()):
            kept = kernel.__dict__[name]
            return kept
        kept = about(kernel)
        frozen = getattr(type(kernel), "__dataclass_params__", None)
        if frozen is not None and frozen.frozen and hasattr(kernel, "__dict__"):
            kernel.__dict__[name] = kept
        return kept

    return asked


@_once
def index_space(kernel: Kernel) -> IndexSpace | None:
    """The kernel's index space, or None for one that runs whole."""
    declared = getattr(kernel, "index_space", None)
    space = declared() if callable(declared) else declared
    if space is not None and not isinstance(space, IndexSpace):
        raise PipelineError(f"kernel {kernel.name!r}: index_space is {type(space).__name__}; return an IndexSpace")
    return space


@_once
def signature(kernel: Kernel) -> tuple[ArgSpec, ...]:
    """The kernel's slots, checked: ArgSpecs with distinct names, at least one of them written."""
    if isinstance(kernel, type):
        raise PipelineError(
            f"{kernel.__name__} is a class, not a kernel; give an instance of it, {kernel.__name__}(...)"
        )
    for member in ("name", "signature", "execute"):
        if not hasattr(kernel, member):
            raise PipelineError(
                f"{type(kernel).__name__} is not a kernel: it has no {member!r}; "
                f"a kernel has name, signature() and execute(ctx)"
            )
    specs = tuple(kernel.signature())
    for spec in specs:
        if not isinstance(spec, ArgSpec):
            raise PipelineError(f"kernel {kernel.name!r}: signature() holds {spec!r}; it is made of ArgSpec")
    slots = [spec.slot for spec in specs]
    if len(set(slots)) != len(slots):
        raise PipelineError(f"kernel {kernel.name!r} has a slot twice: {', '.join(slots)}")
    if not any(spec.writes for spec in specs):
        raise PipelineError(f"kernel {kernel.name!r} writes nothing; one slot at least has access 'write'")
    return specs
