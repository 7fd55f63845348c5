"""Schemes on the CPU: a user's functions inside loops over blocks that LLVM vectorises.

kernels/reference/schemes.py says what each step computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..capture import Captured
from ..factory import Whole, WithParams, register
from ..forge import Native
from ..reference.scheme_steps import decode_step, encode_step, fit_step, quantize_step
from ..schemes.definition import WHOLE, Definition
from ..schemes.probe import probe
from ..schemes.steps import TABLE_SIZE, SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from ..schemes.storage import FLOATS, Stored
from . import isa as levels
from .eager import eager
from .map import compiled
from .permute import most_entries
from .reductions import lanes

_HEADER = """\
import numpy as np
from numba import njit
from {package}.scalar import saturate_narrow
from {package}.vectormath import f32, i32, to_int{sequences}
from {package}.views import as_u16, part, row_at, rows_at, zeros_f32, zeros_i32
{parts}
inlined = njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""
CHUNK = 256  # weights that are encoded between two groups of fetches
_FETCH = f"""
from {__package__}.simd import ask_for


@inlined
def fetch(row, start, count):
    for line in range(start // 16, (start + count + 15) // 16):
        ask_for(row + 64 * line)


"""
_PICK = f"""
from {__package__}.local_arrays import local_f32
from {__package__}.permute import picker
pick = picker({{level!r}}, {{entries}}, scaled=False)
"""
TILE = '@njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'


def _module(scheme: Definition, captured: dict[str, Captured], pack: str = "") -> str:
    """What every tile of a scheme begins with: imports, the functions, and codecs of the parameters."""
    sequences = {name for p in scheme.stored if (codec := FLOATS.get(p.dtype)) for name in codec}
    for one in captured.values():
        sequences |= set(one.helpers)
    sequences -= {"f32", "i32", "to_int"}
    parts = []
    if pack:
        parts.append(f"from {__package__}.bitstream import {pack}\n{pack[:-2]} = {pack}({scheme.bits})\n")
    for name, one in captured.items():
        text = eager(one.emit(name))
        parts.append(lanes(text) if name == "fit" else text)
    names = "".join(f", {name}" for name in sorted(sequences))
    return _HEADER.format(package=__package__, sequences=names, parts="\n".join(parts))


def _indented(text: str, by: int) -> str:
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
        return f"saturate_narrow({value}, 0, {info[0]}, {info[1]})"
    if parameter.dtype == "s32":
        return f"to_int({value})"
    codec = FLOATS[parameter.dtype]
    return value if codec is None else f"{_bits_of(parameter)}({codec[0]}({value}))"


def _load(scheme: Definition, row: str) -> str:
    """Statements that load a block's parameters into s0, s1, .. ; tables into arrays that exist."""
    lines = []
    for n, parameter in enumerate(scheme.stored):
        place = f"p{n}[{row}, g"
        if parameter.table:
            lines += [f"for t in range({parameter.table}):", f"    s{n}[t] = {_loaded(parameter, place + ', t]')}"]
        else:
            lines.append(f"s{n} = {_loaded(parameter, place + ']')}")
    return "\n".join(lines)


def _tables(scheme: Definition) -> str:
    return "\n".join(
        f"s{n} = np.empty({parameter.table}, np.float32)"
        for n, parameter in enumerate(scheme.stored)
        if parameter.table
    )


def _fitted(scheme: Definition, block: str, row: str) -> str:
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


# Codes -----------------------------------------------------------------------------------------------------------


def _code(scheme: Definition, value: str) -> str:
    """What `encode` returned, as the bits of a code."""
    low, high = scheme.code_range
    kind = scheme.captured_encode.returns
    whole = {
        "f": f"saturate_narrow({value}, 0, {low}, {high})",
        "i": f"min(max({value}, np.int32({low})), np.int32({high}))",
        "b": f"np.int32({value})",
    }[kind if isinstance(kind, str) else "i"]
    kept = f"({whole}) & np.int32({(1 << scheme.bits) - 1})" if scheme.signed else whole
    return f"{'np.uint16' if scheme.bits == 16 else 'np.uint8'}({kept})"


def _signed(scheme: Definition, code: str) -> str:
    """The bits of a code as int32."""
    if not scheme.signed:
        return f"np.int32({code})"
    sign = 1 << (scheme.bits - 1)
    return f"np.int32((np.int32({code}) ^ np.int32({sign})) - np.int32({sign}))"


def _arguments(scheme: Definition, takes_index: bool, index: str) -> str:
    values = [f"s{n}" for n in range(len(scheme.stored))]
    return ", ".join([*values, *([f"np.int32({index})"] if takes_index else [])])


def _encode_functions(scheme: Definition) -> str:
    """`encode_part(x, codes, start, s0, ..)`: the codes of one row of a block."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    if scheme.blockwise:
        call = ", ".join(filter(None, ["x", "wide", _arguments(scheme, scheme.encode_takes_index, "start")]))
        body = f"""\
wide = np.zeros(codes.size, np.int32)
encode({call})
for i in range(codes.size):
    codes[i] = {_code(scheme, "wide[i]")}
"""
    else:
        call = ", ".join(filter(None, ["x[i]", _arguments(scheme, scheme.encode_takes_index, "start + i")]))
        body = f"""\
for i in range(x.size):
    codes[i] = {_code(scheme, f"encode({call})")}
"""
    return f"@inlined\ndef encode_part(x, codes, start{values}):\n{_indented(body, 1)}\n"


def _by_table(scheme: Definition, level: levels.Level) -> bool:
    """Whether a block's codes are few enough to decode each once, and to take the weights from there in registers.

    That is for functions that are more than a multiplication, and for blocks with more weights than there are codes.
    """
    if scheme.decode is None or scheme.vector > 1 or scheme.decode_takes_index or scheme.bits >= 8:
        return False
    across = scheme.edges[1]
    if 1 << scheme.bits > min(most_entries(level), across if across != WHOLE else most_entries(level)):
        return False
    return probe(scheme).kind in ("table", "other")


def _decode_functions(scheme: Definition, level: levels.Level) -> str:
    """`decode_part(codes, y, start, s0, ..)`: one row of a block."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    if scheme.decode is None:
        call = ", ".join(filter(None, ["wide", "y", _arguments(scheme, scheme.decode_takes_index, "start")]))
        body = f"""\
wide = np.empty(codes.size, np.int32)
for i in range(codes.size):
    wide[i] = {_signed(scheme, "codes[i]")}
y[:] = np.float32(0)
decode({call})
"""
    elif _by_table(scheme, level):
        call = ", ".join([_signed(scheme, "code"), *_arguments(scheme, False, "").split(", ")]).rstrip(", ")
        entries = 1 << scheme.bits
        body = f"""\
table = local_f32({max(entries, level.vector_bytes // 4, 16)})
for code in range({entries}):
    table[code] = decode({call})
pick(table, codes, np.float32(1), y)
"""
    else:
        call = ", ".join(
            filter(None, [_signed(scheme, "codes[i]"), _arguments(scheme, scheme.decode_takes_index, "start + i")])
        )
        body = f"""\
for i in range(y.size):
    y[i] = decode({call})
"""
    return f"@inlined\ndef decode_part(codes, y, start{values}):\n{_indented(body, 1)}\n"


def _scratch(scheme: Definition, row: str) -> tuple[str, str, str]:
    """Where a row's codes lie one after another: (made before the rows, found in a row, packed after it)."""
    if scheme.bits == 8:
        return "", f"one = row_at({row}, n)", ""
    if scheme.bits == 16:
        return "", f"one = as_u16(row_at({row}, n))", ""
    return "one = np.zeros((n_codes + 7) // 8 * 8, np.uint8)", "", f"pack(one, row_at({row}, n), n_codes)"


def _parameters(scheme: Definition) -> str:
    return "".join(f"p{n}, " for n in range(len(scheme.stored)))


def _unrolled(scheme: Definition) -> bool:
    """Whether the width of a block is text: short ones vectorise only if the compiler knows it."""
    across = scheme.edges[1]
    return across in (16, 32, 48, 64, 128)


def _per_block(scheme: Definition, call: str) -> str:
    """Loops over the blocks of a row. What is no text is `across`, so that other blocks compile nothing."""
    if not _unrolled(scheme):
        return (
            "for g in range((K + across - 1) // across):\n"
            f"    start = g * across\n    width = min(across, K - start)\n{_indented(call, 1)}"
        )
    across = scheme.edges[1]
    return (
        f"for g in range(K // {across}):\n    start, width = g * {across}, {across}\n{_indented(call, 1)}"
        f"for g in range(K // {across}, (K + {across - 1}) // {across}):\n"
        f"    start, width = g * {across}, K - g * {across}\n{_indented(call, 1)}"
    )


def _edges(scheme: Definition, data: int) -> Callable[..., tuple[int, int]]:
    """What follows the operands of a tile: columns and rows of a block. `data`: which operand is the matrix."""

    def params(*operands: Any) -> tuple[int, int]:
        down, across = scheme.edges
        rows, columns = operands[data].shape
        return max(columns, 1) if across == WHOLE else across, max(rows, 1) if down == WHOLE else down

    return params


def _code_part(scheme: Definition) -> str:
    v = scheme.vector
    return "part(one, start, width)" if v == 1 else f"part(one, start // {v}, (width + {v - 1}) // {v})"


@register("scheme_quantize", backend="cpu", variant="captured", requires=compiled)
def build_quantize(kernel: SchemeQuantize) -> WithParams:
    return _encoder(kernel.scheme, fits=True)


@register("scheme_encode", backend="cpu", variant="captured", requires=compiled)
def build_encode(kernel: SchemeEncode) -> WithParams:
    return _encoder(kernel.scheme, fits=False)


def _encoded_block(scheme: Definition, values: str, fitted: bool) -> str:
    """Statements that encode one row of a block. Where the row was just fitted, they fetch the next one meanwhile.

    Fitting reads a row from memory and does little else, encoding reads it again from the first cache and does much: one
    after the other, each would wait for what the other one could do.
    """
    whole = f"encode_part(part(row, start, width), {_code_part(scheme)}, n * K + start{values})"
    if not fitted:
        return whole
    if scheme.vector > 1 or scheme.blockwise or _unrolled(scheme):
        return f"fetch(ahead, start, width)\n{whole}"
    return (
        f"for first in range(start, start + width, {CHUNK}):\n"
        f"    count = min({CHUNK}, start + width - first)\n"
        f"    fetch(ahead, first, count)\n"
        f"    encode_part(part(row, first, count), part(one, first, count), n * K + first{values})"
    )


def _encoder(scheme: Definition, fits: bool) -> WithParams:
    made, found, packed = _scratch(scheme, "codes")
    captured = {"encode": scheme.captured_encode}
    if fits and scheme.captured_fit is not None:
        captured["fit"] = scheme.captured_fit
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    fit = _per_block(scheme, _fitted(scheme, "part(row, start, width)", "n")) if fits else ""
    ahead = "ahead = row_at(x, min(n + 1, n1 - 1)).ctypes.data\n" if fits else ""
    block = _per_block(scheme, f"{_load(scheme, 'r')}\n{_encoded_block(scheme, values, fits)}")
    body = (
        f"K = x.shape[1]\nn_codes = (K + {scheme.vector - 1}) // {scheme.vector}\n{made}\n{_tables(scheme)}\n"
        f"for n in range(n0, n1):\n    row, r = row_at(x, n), n // down\n"
        f"{_indented(found, 1)}{_indented(fit, 1)}{_indented(ahead, 1)}{_indented(block, 1)}"
        f"{_indented(packed, 1)}return np.int32(0)\n"
    )
    text = (
        _module(scheme, captured, "packer" if packed else "")
        + (_FETCH if fits else "")
        + _encode_functions(scheme)
        + f"\n{TILE}\ndef tile(n0, n1, x, {_parameters(scheme)}codes, across, down):\n"
        + _indented(body, 1)
    )
    return WithParams(Native(text), _edges(scheme, 0))


def decode_text(scheme: Definition, level: levels.Level, name: str) -> str:
    """A module with a tile `name(n0, n1, codes, p0, .., y, across, down)`, which decodes rows n0:n1."""
    if scheme.bits == 8:
        made, found, unpack = "", "one = row_at(codes, n)", ""
    elif scheme.bits == 16:
        made, found, unpack = "", "one = as_u16(row_at(codes, n))", ""
    else:
        made = "one = np.zeros((n_codes + 7) // 8 * 8, np.uint8)"
        found, unpack = "unpack(row_at(codes, n), one, n_codes)", "unpacker"
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    block = _per_block(
        scheme,
        f"{_load(scheme, 'r')}\ndecode_part({_code_part(scheme)}, part(row, start, width), n * K + start{values})",
    )
    body = (
        f"K = y.shape[1]\nn_codes = (K + {scheme.vector - 1}) // {scheme.vector}\n{made}\n{_tables(scheme)}\n"
        f"for n in range(n0, n1):\n    row, r = row_at(y, n), n // down\n{_indented(found, 1)}{_indented(block, 1)}"
    )
    return (
        _module(scheme, {"decode": scheme.captured_decode}, unpack)
        + (_PICK.format(level=level.name, entries=1 << scheme.bits) if _by_table(scheme, level) else "")
        + _decode_functions(scheme, level)
        + f"\n{TILE}\ndef {name}(n0, n1, codes, {_parameters(scheme)}y, across, down):\n"
        + _indented(body, 1)
    )


@register("scheme_decode", backend="cpu", variant="captured", requires=compiled)
def build_decode(kernel: SchemeDecode, isa: str | None = None) -> WithParams:
    scheme = kernel.scheme
    text = decode_text(scheme, levels.select(isa), "tile")
    return WithParams(Native(text), _edges(scheme, len(scheme.stored) + 1))


@register("scheme_fit", backend="cpu", variant="captured", requires=compiled)
def build_fit(kernel: SchemeFit) -> WithParams:
    scheme = kernel.scheme
    captured = {"fit": scheme.captured_fit} if scheme.captured_fit is not None else {}
    if scheme.edges[0] == 1:
        block = _per_block(scheme, _fitted(scheme, "part(row, start, width)", "n"))
        body = f"K = x.shape[1]\nfor n in range(n0, n1):\n    row = row_at(x, n)\n{_indented(block, 1)}"
        axis = "n"
    else:
        gather = f"""\
if width == K and x.strides[0] == 4 * K:
    block = rows_at(x, r * down, tall)
else:
    block = np.empty(tall * width, np.float32)
    for n in range(tall):
        row, into = row_at(x, r * down + n), part(block, n * width, width)
        for i in range(width):
            into[i] = row[start + i]
{_fitted(scheme, "block", "r")}"""
        body = "K = x.shape[1]\nfor r in range(r0, r1):\n    tall = min(down, x.shape[0] - r * down)\n" + _indented(
            _per_block(scheme, gather), 1
        )
        axis = "r"
    text = (
        _module(scheme, captured)
        + f"\n{TILE}\ndef tile({axis}0, {axis}1, x, {_parameters(scheme)}across, down):\n"
        + _indented(body + "return np.int32(0)\n", 1)
    )
    return WithParams(Native(text), _edges(scheme, 0))


@register("scheme_fit", backend="cpu", variant="interpreted", priority=-100)
def interpreted_fit(kernel: SchemeFit) -> Whole:
    return fit_step(kernel)


@register("scheme_encode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_encode(kernel: SchemeEncode) -> Whole:
    return encode_step(kernel)


@register("scheme_quantize", backend="cpu", variant="interpreted", priority=-100)
def interpreted_quantize(kernel: SchemeQuantize) -> Whole:
    return quantize_step(kernel)


@register("scheme_decode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_decode(kernel: SchemeDecode) -> Whole:
    return decode_step(kernel)
