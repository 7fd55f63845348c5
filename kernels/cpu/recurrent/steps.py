"""A recurrence on the CPU: every step of the sequence in one call, state and sums in scratch, gates a vector at a time.

Where threads share the units, a call computes some units of one step, from the state that all of them left in y and c.
Weights stand in panels that hold all gates of a few units, so a product reads memory from end to end.
kernels/reference/recurrent.py says what it computes.
"""

from __future__ import annotations

from ...factory import Whole, register
from ...forge import Native
from ...recurrent import LANES, Recurrence
from ...reference.recurrent import recurrence_step
from ..map import compiled

MR = 4  # batches whose products share a read of the weights
AHEAD = 2048  # bytes of the next panel that the near cache is asked for while gates are computed

_TEXT = """\
import numpy as np
from numba import njit
from tilework.kernels import recurrent_gates as gates
from tilework.kernels.cpu.elements import start_of
from tilework.kernels.cpu.recurrent.product import product
from tilework.kernels.cpu.reduce.bodies import codes, value_twice
from tilework.kernels.cpu.reduce.quantizer import parameters
from tilework.kernels.cpu.reduce.passes import one_pass
from tilework.kernels.cpu.simd import ask_near, copy_bytes, get_f32, put_f32, zero_bytes

{prelude}

@njit(nogil=True, error_model="numpy")
def tile(b0, b1, {more}{operands}, scratch):
    steps, rows = y.shape[0], b1 - b0
    padded = 1 if rows == 1 else (rows + {MR} - 1) // {MR} * {MR}
    h_at = (start_of(scratch) + 63) // 64 * 64
    next_at = h_at + padded * {state}
    c_at = next_at + padded * {state}
    z_at = c_at + padded * {state}
    gated_at = z_at + padded * {state}
    code_at = gated_at + padded * {state}
    s_at = code_at + padded * {state}
    zero_bytes(h_at, padded * {state} * 6)
    for r in range(rows):
{load}
{load_cell}
    for step in range({first}, {last}):
{body}
    for r in range(rows if {last} == steps else 0):
        for n in range({units}):
            h[b0 + r, n] = get_f32(h_at + r * {state}, n)
{store_cell}
"""
_LOAD = """\
        for n in range({hidden}):
            put_f32(h_at + r * {state}, n, h0[b0 + r, n])"""
_LOAD_LEFT = """\
        if t0 > 0:
            step = t0 - 1
            t = {place}
            copy_bytes(h_at + r * {state}, start_of(y) + t * y.strides[0] + (b0 + r) * y.strides[1], {bytes})
        for n in range({hidden} if t0 == 0 else 0):
            put_f32(h_at + r * {state}, n, h0[b0 + r, n])"""


def _length(kernel: Recurrence) -> str:
    """How many steps a batch has."""
    return "min(np.int64(lengths[b0 + r]), steps)" if kernel.lengths else "steps"


def _place(kernel: Recurrence) -> str:
    """Which element of the sequence a batch is at."""
    if not kernel.reverse:
        return "step"
    length = _length(kernel)
    return f"{length} - 1 - step if step < {length} else step"


def _encode(kernel: Recurrence, n: int, source: str) -> list[str]:
    """Lines that leave the codes of the state at `source` at code_at, and their scale and zero point."""
    state = 4 * kernel.units
    return [
        "lo, hi = np.float32(0), np.float32(0)",
        "for r in range(rows):",
        f"    if step {'<' if n else '<='} {_length(kernel)}:",
        f"        low, high = extremes({kernel.hidden}, {source} + r * {state})",
        "        lo = low if low < lo or low != low else lo",
        "        hi = high if high > hi or high != high else hi",
        "grid, zero = grid_of(lo, hi)",
        "for r in range(rows):",
        f"    encode({kernel.hidden}, {source} + r * {state}, code_at + r * {state}, grid, zero)",
    ]


def _group(kernel: Recurrence, n: int, source: str, name: str, more: list[str]) -> list[str]:
    """Lines that take the product of group n of gates with the state at `source`, and call its pass.

    more   addresses behind the sums and what the input gives
    """
    group, state = kernel.groups[n], 4 * kernel.units
    width = 4 * LANES * group.blocks  # bytes of a panel's units
    panels, row = kernel.units * 4 // width, group.gates * width
    size = kernel.depth * row
    a = "code_at" if kernel.codes else source
    own = [f"own + {g * width}" for g in range(group.gates)]
    numbers = []
    if kernel.codes:
        columns = ["sums", "scale", *(["zeros"] if kernel.zero_points else [])]
        first = group.first * state
        own += [f"start_of({name}) + {first + g * width} + q * {row}" for name in columns for g in range(group.gates)]
        numbers = ["zero", "grid"]
        if kernel.zero_points:
            numbers.append(f"total({kernel.hidden}, code_at + r * {state})")
    given = [f"x_at + {4 * g * kernel.hidden}" for g in range(group.first, group.first + group.gates)]
    call = f"{name}({', '.join(['count', *own, *given, *more, *numbers])})"
    body = [
        f"own, at = s_at + r * {row}, q * {width}",
        f"t = {_place(kernel)}",
        "x_at = start_of(given) + t * given.strides[0] + (b0 + r) * given.strides[1] + at",
        f"old, new, cell = h_at + r * {state} + at, next_at + r * {state} + at, c_at + r * {state} + at",
        f"z, gated = z_at + r * {state} + at, gated_at + r * {state} + at",
        call,
    ]
    if kernel.lengths:
        body = [f"if step < {_length(kernel)}:", *(f"    {line}" for line in body)]
    return [
        *(_encode(kernel, n, source) if kernel.codes else []),
        *_panels(kernel, panels, group.blocks),
        f"    panel = start_of(r{n}) + q * {size}",
        "    if padded == 1:",
        f"        one_{n}({kernel.depth}, s_at, {row}, {width}, {a}, {state}, panel)",
        f"    for r in range(0, padded if padded > 1 else 0, {MR}):",
        f"        four_{n}({kernel.depth}, s_at + r * {row}, {row}, {width}, {a} + r * {state}, {state}, panel)",
        f"    near = panel - {size} if step & 1 else panel + {size}",
        f"    for line in range(0, {min(AHEAD, size)}, 64):",
        "        ask_near(near + line)",
        f"    count = min({width // 4}, {kernel.hidden} - q * {width // 4})",
        "    for r in range(rows):",
        *(f"        {line}" for line in body),
    ]


def _panels(kernel: Recurrence, panels: int, blocks: int) -> list[str]:
    """The head of the loop over panels, back and forth: what was read last is still in the cache."""
    if not kernel.shared:
        return [f"for place in range({panels}):", f"    q = {panels - 1} - place if step & 1 else place"]
    width = blocks * LANES
    return [
        f"q0, q1 = u0 // {width}, (u1 + {width - 1}) // {width}",
        "for place in range(q0, q1):",
        "    q = q0 + q1 - 1 - place if step & 1 else place",
    ]


def _prelude(kernel: Recurrence) -> list[str]:
    """The passes and products that the tile function calls."""
    common = f"{kernel.activations!r}, {kernel.numbers!r}, {kernel.clip!r}"
    lines = [
        f"{name}_{n} = product({rows}, {group.gates}, {group.blocks}, {kernel.codes})"
        for n, group in enumerate(kernel.groups)
        for name, rows in (("one", 1), ("four", MR))
    ]
    if kernel.codes:
        lines.append('extremes = one_pass(value_twice, ("f32",), (), ("min", "max"))')
        lines.append('grid_of = parameters("u8", False)')
        lines.append('encode = one_pass(codes(0, 255), ("f32",), ("u8",), (), 2)')
    if kernel.zero_points:
        lines.append('total = one_pass(gates.as_number, ("u8",), (), ("add",))')

    def activate(name: str, function: str, n: int, more: int, outputs: int) -> str:
        count = kernel.groups[n].gates
        real = f'("f32",) * {count + more}'
        if not kernel.codes:
            return f'{name} = one_pass(gates.{function}, ("f32",) * {2 * count + more}, ("f32",) * {outputs})'
        columns = f'("s32",) * {2 * count} + ("f32",) * {count} + ("s32",) * {count if kernel.zero_points else 0}'
        function = f"gates.of_codes(gates.{function}, {count}, {kernel.zero_points})"
        return f'{name} = one_pass({function}, {columns} + {real}, ("f32",) * {outputs}, (), {2 + kernel.zero_points})'

    if kernel.cell == "rnn":
        return [*lines, activate("activate", f"rnn({common})", 0, 0, 1)]
    if kernel.cell == "lstm":
        function = f"lstm({common}, {kernel.peepholes}, {kernel.input_forget})"
        return [*lines, activate("activate", function, 0, 4 if kernel.peepholes else 1, 2)]
    if kernel.linear:
        return [*lines, activate("activate", f"gru_linear({common})", 0, 2, 1)]
    return [
        *lines,
        activate("reset", f"gru_reset({common})", 0, 1, 2),
        activate("activate", f"gru_new({common})", 1, 2, 1),
    ]


def _body(kernel: Recurrence) -> list[str]:
    """One step of the sequence."""
    hidden, state = 4 * kernel.hidden, 4 * kernel.units
    own, nbytes = ("4 * u0", "4 * (u1 - u0)") if kernel.shared else ("0", str(hidden))
    if kernel.cell == "rnn":
        lines = _group(kernel, 0, "h_at", "activate", ["new"])
    elif kernel.cell == "lstm":
        holes = [f"start_of(peepholes) + {n * hidden} + at" for n in range(3)] if kernel.peepholes else []
        lines = _group(kernel, 0, "h_at", "activate", ["cell", *holes, "cell", "new"])
    elif kernel.linear:
        lines = _group(kernel, 0, "h_at", "activate", ["start_of(bias) + at", "old", "new"])
    else:
        lines = _group(kernel, 0, "h_at", "reset", ["old", "z", "gated"])
        lines += _group(kernel, 1, "gated_at", "activate", ["z", "old", "new"])
    kept = [
        f"copy_bytes(h_at + r * {state} + {own}, next_at + r * {state} + {own}, {nbytes})",
        f"copy_bytes(y_at + {own}, h_at + r * {state} + {own}, {nbytes})",
    ]
    if kernel.lengths:
        kept = [
            f"if step < {_length(kernel)}:",
            *(f"    {line}" for line in kept),
            "else:",
            f"    zero_bytes(y_at, {hidden})",
        ]
    return [
        *lines,
        "for r in range(rows):",
        f"    t = {_place(kernel)}",
        "    y_at = start_of(y) + t * y.strides[0] + (b0 + r) * y.strides[1]",
        *(f"    {line}" for line in kept),
    ]


def _copy(name: str, kernel: Recurrence, load: bool) -> str:
    """Lines that copy an array into the scratch of the cell, or back."""
    place = f"c_at + r * {4 * kernel.units}"
    given = f"({name}[b0 + r, n] if t0 == 0 else c[b0 + r, n])" if kernel.shared else f"{name}[b0 + r, n]"
    line = f"put_f32({place}, n, {given})" if load else f"{name}[b0 + r, n] = get_f32({place}, n)"
    return f"    for r in range(rows):\n        for n in range({_units(kernel)}):\n            {line}"


def _units(kernel: Recurrence) -> str:
    """Bounds of the units that a call computes."""
    return "u0, u1" if kernel.shared else str(kernel.hidden)


@register("recurrence", backend="cpu", requires=compiled)
def build(kernel: Recurrence) -> Native:
    lstm = kernel.cell == "lstm"
    return Native(
        _TEXT.format(
            prelude="\n".join(_prelude(kernel)),
            operands=", ".join(kernel.operands),
            more="t0, t1, u0, u1, " if kernel.shared else "",
            MR=MR,
            units=_units(kernel),
            state=4 * kernel.units,
            first="t0" if kernel.shared else "0",
            last="t1" if kernel.shared else "steps",
            load=(_LOAD_LEFT if kernel.shared else _LOAD).format(
                hidden=kernel.hidden, bytes=4 * kernel.hidden, state=4 * kernel.units, place=_place(kernel)
            ),
            load_cell=_copy("c0", kernel, True) if lstm else "",
            store_cell=_copy("c", kernel, False) if lstm else "",
            body="\n".join(f"        {line}" for line in _body(kernel)),
        )
    )


@register("recurrence", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: Recurrence) -> Whole:
    """Whole arrays under plain Python."""
    return recurrence_step(kernel)
