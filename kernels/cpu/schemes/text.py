"""Text that all tiles of schemes are made of: a user's functions, their parameters, and the loops over blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...capture import Captured
from ...entry import NO_MEMORY
from ...forge import allocates
from ...schemes.definition import WHOLE, Definition
from ...schemes.steps import TABLE_SIZE
from ...schemes.storage import FLOATS, Stored
from ..eager import eager
from ..reductions import lanes

ROOM = __package__.rpartition(".")[0]  # of the parts that texts import

_HEADER = """\
import numpy as np
from numba import njit
from {package}.schemes.calls import fetch, fetch_to_write, held, held_whole, larger, smaller, zeroed_f32, zeroed_u8
from {package}.vectormath import f32, i32, to_int{sequences}
from {package}.views import as_u16, part, row_at, rows_at, zeros_f32, zeros_i32
{parts}
inlined = njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""
_TILE = '@njit({inline}nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'


def module(scheme: Definition, captured: dict[str, Captured], pack: str = "") -> str:
    """What every tile of a scheme begins with: imports, the functions, and codecs of the parameters."""
    sequences = {name for p in scheme.stored if (codec := FLOATS.get(p.dtype)) for name in codec}
    for one in captured.values():
        sequences |= set(one.helpers)
    sequences -= {"f32", "i32", "to_int"}
    parts = []
    if pack:
        parts.append(f"from {ROOM}.bitstream import {pack}\n{pack[:-2]} = {pack}({scheme.bits})\n")
    for name, one in captured.items():
        text = eager(one.emit(name))
        parts.append(lanes(text) if name == "fit" else text)
    names = "".join(f", {name}" for name in sorted(sequences))
    return _HEADER.format(package=ROOM, sequences=names, parts="\n".join(parts))


def with_tile(before: str, head: str, body: str) -> str:
    """A module with a tile, `head` being its name and arguments.

    It is compiled into its entry, which takes a fifth of the time off. One that may raise is called instead: an exception
    that is raised in an entry itself is printed and forgotten.
    """
    inline = "" if allocates(before + body) or "raise " in body else 'inline="always", '
    return f"{before}\n{_TILE.format(inline=inline)}\ndef {head}:\n{indented(body, 1)}"


def zeros(name: str, kind: str, size: str, otherwise: str = f"return np.int32({NO_MEMORY})") -> str:
    """Statements that make an array of zeros, and what is done where there is no memory for it."""
    return f"{name} = zeroed_{kind}({size})\nif {name}.size != {size}:\n    {otherwise}"


def indented(text: str, by: int) -> str:
    return "".join(f"{'    ' * by}{line}\n" for line in text.splitlines())


# Parameters ------------------------------------------------------------------------------------------------------


def _bits_of(parameter: Stored) -> str:
    return "np.uint16" if parameter.numpy.itemsize == 2 else "np.uint8"


def _loaded(parameter: Stored, where: str) -> str:
    """A stored value as the functions see it."""
    if parameter.dtype not in FLOATS:
        return f"np.int32({where})"
    codec = FLOATS[parameter.dtype]
    return where if codec is None else f"{codec[1]}(np.int32({where}))"


def _kept(parameter: Stored, value: str) -> str:
    """A float32 value as it is stored."""
    if parameter.dtype in ("u8", "s8", "u16", "s16"):
        info = {"u8": (0, 255), "s8": (-128, 127), "u16": (0, 65535), "s16": (-32768, 32767)}[parameter.dtype]
        return f"held({value}, {info[0]}, {info[1]})"
    if parameter.dtype == "s32":
        return f"to_int({value})"
    codec = FLOATS[parameter.dtype]
    return value if codec is None else f"{_bits_of(parameter)}({codec[0]}({value}))"


def load(scheme: Definition, row: str) -> str:
    """Statements that load a block's parameters into s0, s1, .. ; tables into arrays that exist."""
    lines = []
    for n, parameter in enumerate(scheme.stored):
        place = f"p{n}[{row}, g"
        if parameter.table:
            lines += [f"for t in range({parameter.table}):", f"    s{n}[t] = {_loaded(parameter, place + ', t]')}"]
        else:
            lines.append(f"s{n} = {_loaded(parameter, place + ']')}")
    return "\n".join(lines)


def tables(scheme: Definition) -> str:
    return "\n".join(
        f"s{n} = np.empty({parameter.table}, np.float32)"
        for n, parameter in enumerate(scheme.stored)
        if parameter.table
    )


def fitted(scheme: Definition, block: str, row: str) -> str:
    """Statements that fit `block` and store what comes out at (row, g)."""
    captured = scheme.captured_fit
    if captured is None:
        return "pass"
    lines = [f"fitted = fit({block})"]
    for n, parameter in enumerate(scheme.stored):
        value = f"fitted[{n}]" if isinstance(captured.returns, tuple) else "fitted"
        place = f"p{n}[{row}, g"
        if parameter.table:
            lines += [
                f"if {value}.size != {parameter.table}:",
                f"    return np.int32({TABLE_SIZE})",
                f"for t in range({parameter.table}):",
                f"    {place}, t] = {_kept(parameter, f'{value}[t]')}",
            ]
        else:
            lines.append(f"{place}] = {_kept(parameter, value)}")
    return "\n".join(lines)


# Blocks ----------------------------------------------------------------------------------------------------------


def arguments(scheme: Definition, takes_index: bool, index: str) -> str:
    values = [f"s{n}" for n in range(len(scheme.stored))]
    return ", ".join([*values, *([f"np.int32({index})"] if takes_index else [])])


def parameters(scheme: Definition) -> str:
    return "".join(f"p{n}, " for n in range(len(scheme.stored)))


def unrolled(scheme: Definition) -> bool:
    """Whether the width of a block is text: short ones vectorise only if the compiler knows it."""
    across = scheme.edges[1]
    return across in (16, 32, 48, 64, 128)


def per_block(scheme: Definition, call: str, first: str = "0", last: str = "(K + across - 1) // across") -> str:
    """Loops over blocks of a row. What is no text is `across`, so that other blocks compile nothing."""
    if not unrolled(scheme):
        return (
            f"for g in range({first}, {last}):\n"
            f"    start = g * across\n    width = smaller(across, K - start)\n{indented(call, 1)}"
        )
    across = scheme.edges[1]
    return (
        f"for g in range({first}, smaller({last}, K // {across})):\n"
        f"    start, width = g * {across}, {across}\n{indented(call, 1)}"
        f"for g in range(larger({first}, K // {across}), {last}):\n"
        f"    start, width = g * {across}, K - g * {across}\n{indented(call, 1)}"
    )


def edges(scheme: Definition, data: int) -> Callable[..., tuple[int, int]]:
    """What follows the operands of a tile: columns and rows of a block. `data`: which operand is the matrix."""

    def params(*operands: Any) -> tuple[int, int]:
        down, across = scheme.edges
        rows, columns = operands[data].shape
        return max(columns, 1) if across == WHOLE else across, max(rows, 1) if down == WHOLE else down

    return params


def code_part(scheme: Definition) -> str:
    v = scheme.vector
    return "part(one, start, width)" if v == 1 else f"part(one, start // {v}, (width + {v - 1}) // {v})"
