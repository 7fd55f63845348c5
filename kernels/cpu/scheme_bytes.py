"""Schemes whose blocks are bytes of their own layout, on the CPU: a user's functions over one block after another.

kernels/reference/scheme_bytes.py says what each step computes. A last block that is not full goes through a spare one.
"""

from __future__ import annotations

from ..capture import Captured
from ..factory import Whole, WithParams, register
from ..forge import Native
from ..reference.scheme_steps import bytes_decode_step, bytes_encode_step, bytes_split_step
from ..schemes.definition import Definition
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeSplit
from .bounds import proven
from .map import compiled
from .reductions import lanes

_HEADER = """\
import numpy as np
from numba import njit
from {package}.vectormath import f32, i32, to_int{sequences}
from {package}.local_arrays import at_most, at_most_whole, local_f32, local_i32
from {package}.views import part, row_at
bare = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
{function}
BLOCK, BYTES = {block}, {nbytes}
"""
TILE = '@njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'

# The block is cut out inside a function that is compiled once, so that its size is known there.
_ENCODE = """
@bare
def encode_one(x, at, codes, g):
    given, source = local_f32(BLOCK), part(x, at, BLOCK)
    for i in range(at_most(BLOCK)):
        given[i] = source[i]
    encode(given, part(codes, g * BYTES, BYTES))

{tile}
def tile(n0, n1, x, codes):
    K = x.shape[1]
    spare = np.zeros(BLOCK, np.float32)
    for n in range(n0, n1):
        row, into = row_at(x, n), row_at(codes, n)
        into[:] = np.uint8(0)
        for g in range(K // BLOCK):
            encode_one(row, g * BLOCK, into, g)
        rest = K // BLOCK * BLOCK
        if rest < K:
            spare[:] = np.float32(0)
            for i in range(rest, K):
                spare[i - rest] = row[i]
            encode_one(spare, 0, into, K // BLOCK)
"""
_DECODE = """
@bare
def decode_one(codes, g, y, at):
    out = part(y, at, BLOCK)
{body}

{tile}
def tile(n0, n1, codes, y):
    K = y.shape[1]
    spare = np.zeros(BLOCK, np.float32)
    for n in range(n0, n1):
        row, into = row_at(codes, n), row_at(y, n)
        for g in range(K // BLOCK):
            decode_one(row, g, into, g * BLOCK)
        rest = K // BLOCK * BLOCK
        if rest < K:
            decode_one(row, K // BLOCK, spare, 0)
            for i in range(rest, K):
                into[i] = spare[i - rest]
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
        package=__package__,
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
def build_decode(kernel: SchemeDecode) -> Native:
    scheme = kernel.scheme
    text = _DECODE.format(tile=TILE, body=_whole() if scheme.grouped is None else _joined(scheme))
    table = "" if scheme.grouped is None or scheme.grouped.table is None else scheme.grouped.facts[-1]
    values = f"TABLE = np.array({list(table)!r}, np.float32)\n" if table else ""
    return Native(_header(scheme, scheme.captured_decode, "decode") + values + text)


def _whole() -> str:
    """Statements that decode a block at once, into a place that nothing else can alias, so that stores vectorise."""
    return """\
    made = local_f32(BLOCK)
    decode(part(codes, g * BYTES, BYTES), made)
    for i in range(at_most(BLOCK)):
        out[i] = made[i]
"""


def _joined(scheme: Definition) -> str:
    """Statements that decode a block in two passes over it: its integers, then times the scales."""
    grouped = scheme.grouped
    assert grouped is not None
    count = int(scheme.block) // grouped.group  # type: ignore[arg-type]
    offset = ", offset" if grouped.offset else ""
    lines = [
        f"q = local_{'f32' if grouped.table is None else 'i32'}(BLOCK)",
        f"scale = local_f32({count})",
        *([f"offset = local_f32({count})"] if grouped.offset else []),
        f"decode(part(codes, g * BYTES, BYTES), q, scale{offset})",
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
        packer="" if whole else f"from {__package__}.bitstream import packer\npack = packer({grouped.bits})\n",
        more=", offset" if grouped.offset else "",
        offset_at=f", part(offset, at, {count})" if grouped.offset else "",
        offset=", offset" if grouped.offset else "",
        offsets=", offsets" if grouped.offset else "",
        store="into[:] = one[: into.size]" if whole else "pack(one, into, K)",
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
