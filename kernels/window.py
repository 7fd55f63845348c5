"""Windows that slide over the spatial axes of an image: what convolution and pooling have in common.

Everything here counts per spatial axis, outermost first. Steps of one, two or three spatial axes are run as if they had
three: (N, D, H, W, C), where an axis that is not there has size 1. A single axis is taken for H, so that it can be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..primitives import sizes
from ..primitives.errors import ArgumentError, LayoutError, ShapeMismatch
from ..primitives.kernel import Affine, Axis, Follow
from ..primitives.sizes import Size, SizeLike

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}  # letters of the spatial axes in a layout
PLACES = {1: (1,), 2: (1, 2), 3: (0, 1, 2)}  # where they are among (D, H, W)
AXES = ("n", "d", "h", "o")  # of the index space: rows along W are never cut
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """
    kernel         taps
    strides        input positions from one output to the next
    before, after  positions of padding; negative ones are cut off
    dilations      positions from one tap to the next
    spread         positions from one input element to the next: what lies between counts as padding (transposed
                   convolution)
    ceil           whether a last window that is not full is taken too, as long as it begins before the padding behind
    """

    kernel: Ints
    strides: Ints
    before: Ints
    after: Ints
    dilations: Ints
    spread: Ints = ()
    ceil: bool = False

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def spreads(self) -> Ints:
        return self.spread or (1,) * self.spatial

    def reach(self, d: int) -> int:
        """Positions that a window covers along axis d."""
        return (self.kernel[d] - 1) * self.dilations[d] + 1

    def laid(self, d: int, n: SizeLike) -> int | Size:
        """Positions along axis d of n input elements, without padding."""
        n = sizes.size(n)
        u = self.spreads[d]
        return n if u == 1 else (n - 1) * u + 1

    def output(self, d: int, n: SizeLike) -> int | Size:
        """How many windows n input elements have along axis d."""
        room = self.laid(d, n) + (self.before[d] + self.after[d] - self.reach(d))
        if not self.ceil:
            return sizes.maximum(0, sizes.floordiv(room, self.strides[d]) + 1)
        begins = sizes.ceildiv(self.laid(d, n) + self.before[d], self.strides[d])
        most = sizes.ceildiv(room, self.strides[d]) + 1
        return sizes.maximum(0, -sizes.maximum(-most, -begins))

    def check(self, step: str, shape: Sequence[Any]) -> None:
        """Raise ShapeMismatch where an input with elements is smaller than a window. shape: of the spatial axes."""
        for d, n in enumerate(shape):
            if isinstance(n, int) and n and int(self.laid(d, n)) + self.before[d] + self.after[d] < self.reach(d):
                padded = int(self.laid(d, n)) + self.before[d] + self.after[d]
                raise ShapeMismatch(
                    f"{step}: a window covers {self.reach(d)} along spatial axis {d}, and the input with its padding "
                    f"has {padded}; pad at least {self.reach(d) - padded} more"
                )

    def follow(self, d: int) -> Follow:
        """What range of the input a range of outputs along axis d needs."""
        axis = _axis(self.spatial, d)
        if axis == "w" or self.spreads[d] != 1:
            return None
        return Affine(axis, self.strides[d], self.before[d], self.reach(d) - 1 - self.before[d])

    def words(self) -> list[int]:
        """kernel, strides, before, dilations and spread along D, H and W, one after the other."""
        return [
            *in_three(self.kernel, 1),
            *in_three(self.strides, 1),
            *in_three(self.before, 0),
            *in_three(self.dilations, 1),
            *in_three(self.spreads, 1),
        ]


def in_three(given: Ints, missing: int) -> list[int]:
    """Values along D, H and W."""
    found = [missing] * 3
    for at, x in zip(PLACES[len(given)], given, strict=True):
        found[at] = x
    return found


def _axis(spatial: int, d: int) -> str:
    return "dhw"[PLACES[spatial][d]]


def layout(text: str, spatial: int, first: str = "N", channel: str = "C") -> str:
    """A layout checked: channels after the first axis, or last. Raises LayoutError with those that work."""
    known = [f"{first}{channel}{SPATIAL[spatial]}", f"{first}{SPATIAL[spatial]}{channel}"]
    if text not in known:
        raise LayoutError(f"layout {text!r} of {spatial} spatial axes; {' or '.join(known)} works")
    return text


def letters(layout: str) -> list[str]:
    """Names for the sizes of an image in this layout."""
    return list(layout)


def image_follows(window: Window, layout: str, channel: Follow) -> tuple[Follow, ...]:
    """What each axis of an input image follows."""
    found: dict[str, Follow] = {"N": "n", "C": channel}
    for d, letter in enumerate(SPATIAL[window.spatial]):
        found[letter] = window.follow(d)
    return tuple(found[letter] for letter in layout)


def result_follows(layout: str) -> tuple[Follow, ...]:
    """What each axis of an output image follows."""
    spatial = len(layout) - 2
    found: dict[str, Follow] = {"N": "n", "C": "o"}
    for d, letter in enumerate(SPATIAL[spatial]):
        axis = _axis(spatial, d)
        found[letter] = None if axis == "w" else axis
    return tuple(found[letter] for letter in layout)


def result_shape(window: Window, layout: str, channels: SizeLike, names: Sequence[SizeLike] = ()) -> tuple[Any, ...]:
    """Shape of the output image; names: sizes of the input's spatial axes, instead of their letters."""
    found: dict[str, Any] = {"N": "N", "C": channels}
    for d, letter in enumerate(SPATIAL[window.spatial]):
        found[letter] = window.output(d, names[d] if names else letter)
    return tuple(found[letter] for letter in layout)


def index_axes(window: Window, channels: SizeLike, multiple: int = 1) -> tuple[Axis, ...]:
    """The axes of the index space: images, output planes and rows, and output channels."""
    out: list[Any] = [1, 1, 1]
    for d, at in enumerate(PLACES[window.spatial]):
        out[at] = window.output(d, SPATIAL[window.spatial][d])
    return (
        Axis("n", "N"),
        Axis("d", out[0], split=window.spatial == 3),
        Axis("h", out[1]),
        Axis("o", channels, multiple=multiple),
    )


def canonical(image: Any, layout: str) -> Any:
    """A view of an image as (N, D, H, W, C)."""
    spatial = len(layout) - 2
    order = [0, *(layout.index(letter) for letter in SPATIAL[spatial]), layout.index("C")]
    if order != list(range(len(order))):
        image = image.transpose(*order)
    at: list[Any] = [None, None, None]
    for place in PLACES[spatial]:
        at[place] = slice(None)
    index = (slice(None), *at, slice(None))
    return image[index]


def per_axis(given: Any, spatial: int, what: str, least: int = 1) -> Ints:
    """One number for all spatial axes, or one each."""
    found = (given,) * spatial if _is_int(given) else tuple(given)
    if len(found) != spatial or not all(_is_int(x) and int(x) >= least for x in found):
        raise ArgumentError(f"{what} is {given!r}; a number of at least {least}, or {spatial} of them, works")
    return tuple(int(x) for x in found)


def paddings(given: Any, spatial: int, what: str) -> tuple[Ints, Ints]:
    """Padding before and behind: one number, one for each axis, or all that come before and then all behind."""
    found = (given,) * spatial if _is_int(given) else tuple(given)
    if len(found) not in (spatial, 2 * spatial) or not all(_is_int(x) and int(x) >= 0 for x in found):
        raise ArgumentError(
            f"{what} is {given!r}; a number of at least 0, {spatial} of them, or {2 * spatial}: before each axis, then "
            f"behind each"
        )
    found = tuple(int(x) for x in found)
    return found[:spatial], found[-spatial:]


def same(spatial: int, shape: Sequence[Any], window: Window, upper: bool, what: str) -> tuple[Ints, Ints]:
    """The padding that leaves ceil(n / stride) outputs; an odd one goes behind (upper) or before."""
    before, after = [], []
    for d, n in enumerate(shape):
        if not isinstance(n, int):
            raise ArgumentError(f"{what}: 'same' padding of an axis whose size is known only at run time; give numbers")
        total = max(0, (-(-n // window.strides[d]) - 1) * window.strides[d] + window.reach(d) - n)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return tuple(before), tuple(after)


def _is_int(x: Any) -> bool:
    return hasattr(x, "__index__") and not isinstance(x, bool)
