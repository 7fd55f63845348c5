"""Schemes whose blocks are bytes of their own layout, on the CPU: a user's functions over one block after another.

kernels/reference/scheme_bytes.py says what each step computes. A last block that is not full goes through a spare one.
"""

from __future__ import annotations

from ...capture import Captured
from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reference.scheme_steps import bytes_decode_step, bytes_encode_step, bytes_split_step
from ...schemes.definition import Definition
from ...schemes.steps import SchemeDecode, SchemeEncode, SchemeSplit
from .. import isa as levels
from ..bounds import proven
from ..map import compiled
from ..permute import most_entries
from ..reductions import lanes
from .text import ROOM

_HEADER = """\
import numpy as np
from numba import njit
from {package}.vectormath import f32, i32, to_int{sequences}
from {package}.local_arrays import at_most, at_most_whole, copied_f32, f32_at, local_f32, local_i32
from {package}.views import part, row_at
bare = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
inlined = njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
{function}
BLOCK, BYTES = {block}, {nbytes}
"""
TILE = '@njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'

# There is one call for whole blocks and for the last one that is not, so that inlining it does not double the code.
_ENCODE = """
{tile}
def tile(n0, n1, x, codes):
    K = x.shape[1]
    spare = np.zeros(BLOCK, np.float32)
    spare_at = np.int64(spare.ctypes.data)
    whole = K // BLOCK
    for n in range(n0, n1):
        row, into = row_at(x, n), row_at(codes, n)
        into[:] = np.uint8(0)
        row_start = np.int64(row.ctypes.data)
        for i in range(whole * BLOCK, K):
            spare[i - whole * BLOCK] = row[i]
        for g in range((K + BLOCK - 1) // BLOCK):
            given = copied_f32(row_start + 4 * BLOCK * g if g < whole else spare_at, BLOCK)
            encode(given, part(into, g * BYTES, BYTES))
    spare[:] = np.float32(0)  # its address was used up to here
"""
_DECODE = """
@inlined
def decode_one(codes, out):
{body}

{tile}
def tile(n0, n1, codes, y):
    K = y.shape[1]
    spare = np.zeros(BLOCK, np.float32)
    spare_at = np.int64(spare.ctypes.data)
    whole = K // BLOCK
    for n in range(n0, n1):
        row, into = row_at(codes, n), row_at(y, n)
        into_at = np.int64(into.ctypes.data)
        for g in range((K + BLOCK - 1) // BLOCK):
            decode_one(part(row, g * BYTES, BYTES), f32_at(into_at + 4 * BLOCK * g if g < whole else spare_at, BLOCK))
        for i in range(whole * BLOCK, K):
            into[i] = spare[i - whole * BLOCK]
"""
_SPLIT = """
{packer}
@bare
def split_one(codes, g, q, wide, scale, at{more}):
    split(part(codes, g * BYTES, BYTES), wide, part(scale, at, {groups}){offset_at})
    out = part(q, g * BLOCK, BLOCK)
    for i in range(BLOCK):
        out[i] = np.uint8(wide[i] & np.int32({mask}))

{tile}
def tile(n0, n1, codes, q, scale{offset}, K):
    G = scale.shape[1]
    blocks = codes.shape[1] // BYTES
    wide = np.zeros(BLOCK, np.int32)
    one = np.zeros(blocks * BLOCK + 8, np.uint8)
    numbers = np.zeros(blocks * {groups}, np.float32)
    offsets = np.zeros(blocks * {groups}, np.float32)
    for n in range(n0, n1):
        row = row_at(codes, n)
        for g in range(blocks):
            split_one(row, g, one, wide, numbers, g * {groups}{offsets})
        for i in range(K, one.size):
            one[i] = np.uint8(0)
        into = row_at(q, n)
        {store}
        out = row_at(scale, n)
        for g in range(G):
            out[g] = numbers[g]
{store_offset}
"""


def _header(scheme: Definition, captured: Captured, name: str) -> str:
    block, nbytes = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    if name == "encode":
        sizes = [block, nbytes]
    elif scheme.grouped is None:
        sizes = [nbytes, block]
    else:
        sizes = [nbytes, block, *[block // scheme.grouped.group] * (2 if scheme.grouped.offset else 1)]
    sequences = "".join(f", {s}" for s in sorted(set(captured.helpers) - {"f32", "i32", "to_int"}))
    return _HEADER.format(
        package=ROOM,
        sequences=sequences,
        function=proven(lanes(captured.emit(name)), name, sizes),
        block=scheme.block,
        nbytes=scheme.block_bytes,
    )


@register("bytes_encode", backend="cpu", variant="captured", requires=compiled)
def build_encode(kernel: SchemeEncode) -> Native:
    scheme = kernel.scheme
    return Native(_header(scheme, scheme.captured_encode, "encode") + _ENCODE.format(tile=TILE))


@register("bytes_decode", backend="cpu", variant="captured", requires=compiled)
def build_decode(kernel: SchemeDecode, isa: str | None = None) -> Native:
    scheme = kernel.scheme
    level = levels.select(isa)
    text = _DECODE.format(tile=TILE, body=_whole() if scheme.grouped is None else _joined(scheme, level))
    table = "" if scheme.grouped is None or scheme.grouped.table is None else scheme.grouped.facts[-1]
    values = ""
    if table:
        room = max(len(table), 16)  # a whole vector may be read
        values = f"TABLE = np.array({[*table, *[0.0] * (room - len(table))]!r}, np.float32)\n"
        if len(table) <= most_entries(level):
            values += f"from {ROOM}.permute import picker\npick = picker({level.name!r}, {len(table)})\n"
    return Native(_header(scheme, scheme.captured_decode, "decode") + values + text)


def _whole() -> str:
    """Statements that decode a block at once, into a place that nothing else can alias, so that stores vectorise."""
    return """\
    made = local_f32(BLOCK)
    decode(codes, made)
    for i in range(at_most(BLOCK)):
        out[i] = made[i]
"""


def _joined(scheme: Definition, level: levels.Level) -> str:
    """Statements that decode a block in two passes over it: its integers, then times the scales."""
    grouped = scheme.grouped
    assert grouped is not None
    count = int(scheme.block) // grouped.group  # type: ignore[arg-type]
    offset = ", offset" if grouped.offset else ""
    lines = [
        f"q = local_{'f32' if grouped.table is None else 'i32'}(BLOCK)",
        f"scale = local_f32({count})",
        *([f"offset = local_f32({count})"] if grouped.offset else []),
        f"decode(codes, q, scale{offset})",
    ]
    length = "at_most_whole" if grouped.group <= 32 else "at_most"
    value = "part_q[i]" if grouped.table is None else "TABLE[part_q[i]]"
    if grouped.zero:
        value = f"({value} - np.float32({grouped.zero}))"
    lines += [
        f"for j in range({count}):",
        "    s = scale[j]",
        *(["    o = offset[j]"] if grouped.offset else []),
        f"    part_q, part_out = part(q, j * {grouped.group}, {grouped.group}), part(out, j * {grouped.group}, {grouped.group})",
    ]
    if grouped.table is not None and len(grouped.table) <= most_entries(level):
        lines.append("    pick(TABLE, part_q, s, part_out)")
        return "".join(f"    {line}\n" for line in lines)
    lines += [
        f"    for i in range({length}({grouped.group})):",
        f"        part_out[i] = {value} * s{' + o' if grouped.offset else ''}",
    ]
    return "".join(f"    {line}\n" for line in lines)


@register("bytes_split", backend="cpu", variant="captured", requires=compiled)
def build_split(kernel: SchemeSplit) -> WithParams:
    scheme = kernel.scheme
    grouped = scheme.grouped
    assert grouped is not None
    whole = grouped.bits == 8
    count = int(scheme.block) // grouped.group  # type: ignore[arg-type]
    text = _SPLIT.format(
        tile=TILE,
        groups=count,
        mask=(1 << grouped.bits) - 1,
        packer="" if whole else f"from {ROOM}.bitstream import packer\npack = packer({grouped.bits})\n",
        more=", offset" if grouped.offset else "",
        offset_at=f", part(offset, at, {count})" if grouped.offset else "",
        offset=", offset" if grouped.offset else "",
        offsets=", offsets" if grouped.offset else "",
        store="for i in range(into.size):\n            into[i] = one[i]" if whole else "pack(one, into, K)",
        store_offset="        out = row_at(offset, n)\n        for g in range(G):\n            out[g] = offsets[g]"
        if grouped.offset
        else "",
    )
    source = _header(scheme, scheme.captured_split("i[]"), "split") + text
    return WithParams(Native(source), lambda *operands: (kernel.columns,))


@register("bytes_encode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_encode(kernel: SchemeEncode) -> Whole:
    return bytes_encode_step(kernel)


@register("bytes_decode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_decode(kernel: SchemeDecode) -> Whole:
    return bytes_decode_step(kernel)


@register("bytes_split", backend="cpu", variant="interpreted", priority=-100)
def interpreted_split(kernel: SchemeSplit) -> Whole:
    return bytes_split_step(kernel)
