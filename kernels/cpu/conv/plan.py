"""What is decided before a convolution runs on the CPU: tiles, bands, what is copied, and where scratch holds what.

Tiles, instructions and panels are the GEMM's (gemm/plan.py), for a matrix of so many values of K as a window has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from ... import forge
from ...conv import Conv
from ...window import Window, in_three
from .. import isa
from ..gemm import driver as gemm
from ..gemm import packing, rows, wide_rows
from ..gemm import plan as gemm_plan
from ..gemm.dot import DOTS
from ..gemm.steps import Engine
from . import driver
from .band import READ
from .weights import Segments

SIDE = {32: (8, 2), 16: (5, 2)}  # registers: rows and vectors of a tile that reads positions side by side
BAND = 320 * 1024  # bytes of a copied band, or of what a band reads in place: it stays in L2 beside a panel
MOST_ROWS = 2**16  # output positions of a band, whose offsets are int32


def instruction(level: isa.Level, kernel: Conv, length: int, pairs_fit: bool = False) -> str:
    """The name in dot.DOTS of what multiplies. length: values of K in a segment."""
    found = gemm_plan.instruction(level, kernel.x_dtype, kernel.w_dtype, pairs_fit)
    # half a pair would be multiplied by zero, which for real numbers may be no number
    return "fma" if found == "vdpbf16ps" and length % DOTS[found].group else found


@lru_cache(maxsize=1024)
def tiles(engine: Engine, cut: Segments, dot: str, window: Window) -> gemm_plan.Plan:
    """The GEMM's plan with tiles that read segments."""
    side = cut.own and cut.joint > 1
    made = gemm_plan.plan(
        cut.K,
        cut.outputs,
        engine.a_dtype if dot != "fma" else "f32",
        engine.b_dtype if dot != "fma" else "f32",
        engine.store,
        terms=engine.terms,
        finish=not engine.direct,
        level=isa.LEVELS[engine.level],
        pairs_fit=engine.pairs_fit,
        tile=engine.tile or (SIDE.get(isa.LEVELS[engine.level].registers) if side else None),
        kc=cut.K,
        after=engine.after,
    )
    own = (cut.channels, cut.own) if cut.own else None
    stride, apart = in_three(window.strides, 1)[2], in_three(window.dilations, 1)[2]
    family = replace(
        made.family,
        segmented=True,
        in_place=False,
        ahead=0,
        own=own,
        side=(cut.joint, stride, apart) if side else None,
    )
    return replace(made, family=family)


def reading(kernel: Conv, dot: str) -> tuple[int, bool]:
    """How elements are copied (band.READ), and whether they may be read in place instead."""
    wanted = DOTS[dot].element
    if kernel.x_dtype in ("u8", "s8"):
        if DOTS[dot].group == 2:
            return (rows.WIDEN_U8 if kernel.x_dtype == "u8" else rows.WIDEN_S8), False
        return rows.COPY, True
    if kernel.x_dtype == wanted:
        return (wide_rows.COPY_4 if wanted == "f32" else wide_rows.COPY_2), True
    return (wide_rows.WIDEN_BF16 if kernel.x_dtype == "bf16" else wide_rows.WIDEN_F16), False


@dataclass(frozen=True)
class Laid:
    """A convolution at given sizes: the words of the driver's block that follow its operands, and bytes of scratch."""

    words: tuple[int, ...]
    scratch: int
    band: int
    copied: bool
    inside: bool
    plan: gemm_plan.Plan


def lay(
    engine: Engine,
    kernel: Conv,
    cut: Segments,
    dot: str,
    x: Any,
    out: Any,
    others: tuple[Any, ...],
    finish: int,
    most: int | None = None,
    idle: bool = False,
) -> Laid:
    """Lay out for an image x and a result out, both (N, D, H, W, C).

    others  what is read beside them with the shape of out: residuals and the like
    finish  address of the entry that finishes tiles
    most    rows of a band, instead of what fits
    idle    whether real padding adds nothing, whatever the image holds (PanelConv)
    """
    return _lay(
        engine, kernel, cut, dot, (*x.shape, *x.strides), (*out.shape, *out.strides),
        tuple((*o.shape, *o.strides) for o in others), finish, most, idle,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _lay(
    engine: Engine,
    kernel: Conv,
    cut: Segments,
    dot: str,
    x: tuple[int, ...],
    out: tuple[int, ...],
    others: tuple[tuple[int, ...], ...],
    finish: int,
    most: int | None,
    idle: bool,
) -> Laid:
    plan = tiles(engine, cut, dot, kernel.window)
    layout, window = plan.layout, kernel.window
    how, may_stay = reading(kernel, dot)
    _, _, item, size = READ[how]
    height, width = out[2], out[3]
    strides, reaches = in_three(window.strides, 1), _reaches(window)
    factors = bool(engine.terms)
    # channels that the vectors of all columns read of a position
    read = (layout.columns - layout.lanes) // cut.own * cut.channels + layout.lanes if cut.own else x[4]
    copied = factors or not may_stay or read > x[4] or not _in_place(kernel, cut, x, out, item)
    inside = bool(copied and cut.own and may_stay and _mostly_inside(kernel, x, out, read))
    copied = copied and not inside
    across = max(width - 1, 0) * strides[2] + reaches[2]
    if copied:
        pixel = x[4] * size
        line = across * pixel
    else:
        pixel, line = x[8], x[7]
    planes = kernel.window.words()[0]
    band = most or _band(height, strides[1], reaches[1], max(1, across * x[4] * size * planes), width)
    if any(o[7] != width * o[8] for o in (out, *others) if height > 1 and width > 1 and 0 not in o[:5]):
        band = 1  # rows of the result that do not follow each other are made one by one
    band = 1 if inside else min(band, max(1, height))
    lines = (band - 1) * strides[1] + reaches[1]
    # copied planes follow each other, whatever their distance in the image
    layer = lines * line if copied else in_three(kernel.dilations, 1)[0] * x[6]
    positions = (plan.family.rows - 1) * strides[2] + reaches[2]  # side by side, that a tile reads
    edges = planes * window.words()[1] * positions * -(-4 * x[4] // 64) * 64
    places, total = _places(
        [
            ("at_block", 8 * (gemm.WORDS + 6 * len(others))),
            ("at_segments", 4 * cut.count),
            ("at_rows", 4 * band * width),
            ("at_factors", 8 * band * width),
            ("at_sums", 4 * planes * lines * across if factors else 0),
            ("at_tile", 4 * layout.nr * gemm.HELD * plan.family.rows),
            ("at_band", planes * lines * line + 64 if copied else edges + 64 if inside else 0),
            ("at_edge", 4 * (cut.count + plan.family.rows) if inside else 0),
        ]
    )
    addresses, _ = gemm_plan.addresses(plan.family)
    names = dict(zip(driver.NAMES[:15], window.words(), strict=True))
    names |= places | {
        "full_tiles": addresses.get("full_tiles", 0),
        "rest_tiles": addresses.get("rest_tiles", 0),
        "full_finish": finish if plan.finish else 0,
        "rest_finish": finish if plan.finish_rest else 0,
        "mr": plan.family.rows,
        "nr": layout.nr,
        "rest_width": layout.rest_vectors * layout.lanes,
        "steps": cut.steps,
        "segments": cut.count,
        "item": plan.out_item,
        "plane": packing.plane_bytes(layout),
        "own": 0,
        "depth": cut.channels * (size if copied else item),
        "outputs": cut.outputs,
        "panel": layout.nr // cut.own * cut.channels * size if cut.own else 0,
        "band": band,
        "copy": copier(how).address if copied else 0,
        "factor": factorer(how).address if factors else 0,
        "inside": insider().address if inside else 0,
        "margin": -(-(read - x[4]) // x[4]) if inside else 0,
        "pixel": pixel,
        "row": line,
        "layer": layer,
        "fewer": driver.NEVER,
        "side": int(plan.family.side is not None),
        "joint": cut.joint,
        "deep": cut.deep,
        "a_shift": plan.a_shift,
        "signed_a": int(kernel.x_dtype == "s8"),
        "extras": 0,
    }
    if copied and planes == cut.deep == in_three(window.spreads, 1)[1] == 1:
        real = driver.ALWAYS if idle else driver.NEVER  # zero times a number is not always zero
        names["fewer"] = real if DOTS[dot].real else driver.WITHOUT_ZERO_POINT
    return Laid(tuple(names[n] for n in driver.NAMES), total, band, copied, inside, plan)


def _reaches(window: Window) -> list[int]:
    return in_three(tuple(window.reach(d) for d in range(window.spatial)), 1)


def _in_place(kernel: Conv, cut: Segments, x: tuple[int, ...], out: tuple[int, ...], item: int) -> bool:
    """Whether windows can be read where the image lies: no padding, whole steps, and segments that are contiguous."""
    window = kernel.window
    if any(window.before) or any(u != 1 for u in window.spreads) or cut.length * item % 4:
        return False
    if x[4] > 1 and x[9] != item:
        return False
    if (cut.joint > 1 and x[8] != x[4] * item) or (cut.deep > 1 and (x[7] != x[4] * item or x[3] != 1)):
        return False
    strides, reaches = in_three(window.strides, 1), _reaches(window)
    if any((out[1 + d] - 1) * strides[d] + reaches[d] > x[1 + d] for d in range(3)):
        return False
    if 0 in x[:5] or min(x[5:]) < 0:
        return False
    farthest = max(kernel.window.words()[0] * strides[0] * x[6], (MOST_ROWS * strides[1] + reaches[1]) * x[7])
    return farthest + reaches[2] * x[8] < 2**31


def _mostly_inside(kernel: Conv, x: tuple[int, ...], out: tuple[int, ...], read: int) -> bool:
    """Whether windows can be read where the image lies but for those past its edges, and that copies less.

    read  channels that a window reads of a position, which go on into the next one
    """
    window, depth, height, width, channels = kernel.window, *x[1:5]
    if any(u != 1 for u in window.spreads) or channels < 1 or (channels > 1 and x[9] != 4) or min(x[5:9]) < 0:
        return False
    if read > channels and x[8] != 4 * channels:
        return False
    strides, before, reaches = in_three(window.strides, 1), in_three(window.before, 0), _reaches(window)
    if (reaches[0] + 1) * x[6] + (reaches[1] + 1) * x[7] + (out[3] * strides[2] + reaches[2] + 1) * x[8] >= 2**31:
        return False
    margin = -(-(read - channels) // channels)
    within = 1
    for d, n in enumerate((depth, height, width - margin)):
        first, last = -(-max(before[d], 0) // strides[d]), (n - reaches[d] + before[d]) // strides[d]
        within *= max(0, min(last, out[1 + d] - 1) - first + 1)
    taps = window.words()[0] * window.words()[1] * window.words()[2]
    # outputs next to each other share about half of the positions that are copied for them
    return (out[1] * out[2] * out[3] - within) * taps < 2 * depth * height * width


def _band(height: int, stride: int, reach: int, line: int, width: int) -> int:
    """Rows of output in a band: of nearly equal number, and their input fits."""
    lines = max(reach, BAND // line)
    most = max(1, min((lines - reach) // stride + 1, MOST_ROWS // max(1, width)))
    return -(-max(1, height) // -(-max(1, height) // most))


def _places(wanted: list[tuple[str, int]]) -> tuple[dict[str, int], int]:
    places, at = {}, gemm.WORK
    for name, nbytes in wanted:
        places[name] = at
        at += -(-nbytes // 64) * 64
    return places, at + 64


@cache
def copier(how: int) -> forge.Entry:
    """The entry that copies the rows of a band."""
    text = f"from tilework.kernels.cpu.conv.band import copy_entry\n\nentry = copy_entry({how})\n"
    return forge.entry(forge.Native(text, raw=True), 1, ())


@cache
def factorer(how: int) -> forge.Entry:
    """The entry that finds the factors of output positions."""
    text = f"from tilework.kernels.cpu.conv.band import factor_entry\n\nentry = factor_entry({how})\n"
    return forge.entry(forge.Native(text, raw=True), 1, ())


@cache
def insider() -> forge.Entry:
    """The entry that reads windows where they lie, but for those past the edges of the image."""
    text = "from tilework.kernels.cpu.conv.inside import inside_entry as entry\n"
    return forge.entry(forge.Native(text, raw=True), 1, ())
