"""Encoding with schemes on the CPU: a user's functions inside loops over blocks that LLVM vectorises.

kernels/reference/schemes.py says what each step computes.
"""

from __future__ import annotations

from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reference.scheme_steps import encode_step, quantize_step
from ...schemes.definition import Definition
from ...schemes.steps import SchemeEncode, SchemeQuantize
from .. import isa as levels
from ..map import compiled
from . import divided as divided
from .text import (
    arguments,
    code_part,
    edges,
    fitted,
    indented,
    load,
    module,
    parameters,
    per_block,
    tables,
    unrolled,
    with_tile,
    zeros,
)

CHUNK = 256  # weights that are encoded between two groups of fetches


def _code(scheme: Definition, value: str) -> str:
    """What `encode` returned, as the bits of a code."""
    low, high = scheme.code_range
    kind = scheme.captured_encode.returns
    whole = {
        "f": f"held({value}, {low}, {high})",
        "i": f"held_whole({value}, {low}, {high})",
        "b": f"np.int32({value})",
    }[kind if isinstance(kind, str) else "i"]
    kept = f"({whole}) & np.int32({(1 << scheme.bits) - 1})" if scheme.signed else whole
    return f"{'np.uint16' if scheme.bits == 16 else 'np.uint8'}({kept})"


def _encode_functions(scheme: Definition, decorator: str) -> str:
    """`encode_part(x, codes, start, s0, ..)`: the codes of one row of a block."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    if scheme.blockwise:
        call = ", ".join(filter(None, ["x", "wide", arguments(scheme, scheme.encode_takes_index, "start")]))
        body = f"""\
wide = np.zeros(codes.size, np.int32)
encode({call})
for i in range(codes.size):
    codes[i] = {_code(scheme, "wide[i]")}
"""
    else:
        call = ", ".join(filter(None, ["x[i]", arguments(scheme, scheme.encode_takes_index, "start + i")]))
        body = f"""\
for i in range(x.size):
    codes[i] = {_code(scheme, f"encode({call})")}
"""
    return f"{decorator}\ndef encode_part(x, codes, start{values}):\n{indented(body, 1)}\n"


def _scratch(scheme: Definition, row: str) -> tuple[str, str, str]:
    """Where a row's codes lie one after another: (made before the rows, found in a row, packed after it)."""
    if scheme.bits == 8:
        return "", f"one = row_at({row}, n)", ""
    if scheme.bits == 16:
        return "", f"one = as_u16(row_at({row}, n))", ""
    made = zeros("one", "u8", "(n_codes + 7) // 8 * 8")
    # packed in one go, for which the lines have to be there
    return made, f"fetch_to_write(row_at({row}, n))", f"pack(one, row_at({row}, n), n_codes)"


@register("scheme_quantize", backend="cpu", variant="captured", requires=compiled)
def build_quantize(kernel: SchemeQuantize, isa: str | None = None) -> WithParams:
    return _encoder(kernel.scheme, levels.select(isa), fits=True)


@register("scheme_encode", backend="cpu", variant="captured", requires=compiled)
def build_encode(kernel: SchemeEncode, isa: str | None = None) -> WithParams:
    return _encoder(kernel.scheme, levels.select(isa), fits=False)


def _encoded_block(scheme: Definition, values: str, fitted: bool) -> str:
    """Statements that encode one row of a block. Where the row was just fitted, they fetch the next one meanwhile.

    Fitting reads a row from memory and does little else, encoding reads it again from the first cache and does much: one
    after the other, each would wait for what the other one could do.
    """
    whole = f"encode_part(part(row, start, width), {code_part(scheme)}, n * K + start{values})"
    if not fitted:
        return whole
    if scheme.vector > 1 or scheme.blockwise or unrolled(scheme):
        return f"fetch(ahead, start, width)\n{whole}"
    return (
        f"for first in range(start, start + width, {CHUNK}):\n"
        f"    count = smaller({CHUNK}, start + width - first)\n"
        f"    fetch(ahead, first, count)\n"
        f"    encode_part(part(row, first, count), part(one, first, count), n * K + first{values})"
    )


def _rows(scheme: Definition, fits: bool) -> str:
    """Statements that fit and encode the blocks of a row, `n`."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    block = per_block(scheme, f"{load(scheme, 'r')}\n{_encoded_block(scheme, values, fits)}")
    if not fits:
        return block
    fit = per_block(scheme, fitted(scheme, "part(row, start, width)", "n"))
    return f"{fit}ahead = np.int64(row_at(x, smaller(n + 1, n1 - 1)).ctypes.data)\n{block}"


def _encoder(scheme: Definition, level: levels.Level, fits: bool) -> WithParams:
    made, found, packed = _scratch(scheme, "codes")
    captured = {"encode": scheme.captured_encode}
    if fits and scheme.captured_fit is not None:
        captured["fit"] = scheme.captured_fit
    quotient = divided.quotient(scheme)
    if quotient is None:
        rows, prelude = _rows(scheme, fits), ""
    else:
        rows, prelude = divided.rows(scheme, quotient, fits), divided.prelude(scheme, quotient, level)
        made = f"{made}\n{divided.made()}"
    body = (
        f"K = x.shape[1]\nn_codes = (K + {scheme.vector - 1}) // {scheme.vector}\n{made}\n{tables(scheme)}\n"
        f"for n in range(n0, n1):\n    row, r = row_at(x, n), n // down\n"
        f"{indented(found, 1)}{indented(rows, 1)}{indented(packed, 1)}return np.int32(0)\n"
    )
    before = (
        module(scheme, captured, "packer" if packed else "")
        + prelude
        + _encode_functions(scheme, "@inlined" if quotient is None else divided.APART)
    )
    text = with_tile(before, f"tile(n0, n1, x, {parameters(scheme)}codes, across, down)", body)
    return WithParams(Native(text), edges(scheme, 0))


@register("scheme_encode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_encode(kernel: SchemeEncode) -> Whole:
    return encode_step(kernel)


@register("scheme_quantize", backend="cpu", variant="interpreted", priority=-100)
def interpreted_quantize(kernel: SchemeQuantize) -> Whole:
    return quantize_step(kernel)
