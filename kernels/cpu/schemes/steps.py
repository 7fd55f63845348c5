"""Schemes on the CPU, fitted and decoded: a user's functions inside loops over blocks that LLVM vectorises.

kernels/reference/schemes.py says what each step computes.
"""

from __future__ import annotations

from ...entry import NO_MEMORY
from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reference.scheme_steps import decode_step, fit_step
from ...schemes.definition import WHOLE, Definition
from ...schemes.probe import probe
from ...schemes.steps import SchemeDecode, SchemeFit
from .. import isa as levels
from ..map import compiled
from ..permute import most_entries
from .text import (
    ROOM,
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
    with_tile,
    zeros,
)

_PICK = f"""
from {ROOM}.local_arrays import local_f32
from {ROOM}.permute import picker
pick = picker({{level!r}}, {{entries}}, scaled=False)
"""


def _signed(scheme: Definition, code: str) -> str:
    """The bits of a code as int32."""
    if not scheme.signed:
        return f"np.int32({code})"
    sign = 1 << (scheme.bits - 1)
    return f"np.int32((np.int32({code}) ^ np.int32({sign})) - np.int32({sign}))"


def _by_table(scheme: Definition, level: levels.Level) -> bool:
    """Whether a block's codes are few enough to decode each once, and to take the weights from there in registers.

    That is for functions that are more than a multiplication, and for blocks with more weights than there are codes.
    """
    if scheme.decode is None or scheme.vector > 1 or scheme.decode_takes_index or scheme.bits >= 8:
        return False
    across = scheme.edges[1]
    if 1 << scheme.bits > min(most_entries(level), across if across != WHOLE else most_entries(level)):
        return False
    return probe(scheme).kind in ("table", "scaled", "other")


def _decode_functions(scheme: Definition, level: levels.Level) -> str:
    """`decode_part(codes, y, start, s0, ..)`: one row of a block."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    if scheme.decode is None:
        call = ", ".join(filter(None, ["wide", "y", arguments(scheme, scheme.decode_takes_index, "start")]))
        body = f"""\
wide = np.empty(codes.size, np.int32)
for i in range(codes.size):
    wide[i] = {_signed(scheme, "codes[i]")}
y[:] = np.float32(0)
decode({call})
"""
    elif _by_table(scheme, level):
        call = ", ".join([_signed(scheme, "code"), *arguments(scheme, False, "").split(", ")]).rstrip(", ")
        entries = 1 << scheme.bits
        body = f"""\
table = local_f32({max(entries, level.vector_bytes // 4, 16)})
for code in range({entries}):
    table[code] = decode({call})
pick(table, codes, np.float32(1), y)
"""
    else:
        call = ", ".join(
            filter(None, [_signed(scheme, "codes[i]"), arguments(scheme, scheme.decode_takes_index, "start + i")])
        )
        body = f"""\
for i in range(y.size):
    y[i] = decode({call})
"""
    return f"@inlined\ndef decode_part(codes, y, start{values}):\n{indented(body, 1)}\n"


def decode_text(scheme: Definition, level: levels.Level, name: str) -> str:
    """A module with a tile `name(n0, n1, codes, p0, .., y, across, down)`, which decodes rows n0:n1."""
    if scheme.bits == 8:
        made, found, unpack = "", "one = row_at(codes, n)", ""
    elif scheme.bits == 16:
        made, found, unpack = "", "one = as_u16(row_at(codes, n))", ""
    else:
        otherwise = f"return np.int32({NO_MEMORY})" if name == "tile" else 'raise MemoryError("no memory for a row")'
        made = zeros("one", "u8", "(n_codes + 7) // 8 * 8", otherwise)
        found, unpack = "unpack(row_at(codes, n), one, n_codes)", "unpacker"
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    block = per_block(
        scheme,
        f"{load(scheme, 'r')}\ndecode_part({code_part(scheme)}, part(row, start, width), n * K + start{values})",
    )
    body = (
        f"K = y.shape[1]\nn_codes = (K + {scheme.vector - 1}) // {scheme.vector}\n{made}\n{tables(scheme)}\n"
        f"for n in range(n0, n1):\n    row, r = row_at(y, n), n // down\n{indented(found, 1)}{indented(block, 1)}"
        "return np.int32(0)\n"
    )
    before = (
        module(scheme, {"decode": scheme.captured_decode}, unpack)
        + (_PICK.format(level=level.name, entries=1 << scheme.bits) if _by_table(scheme, level) else "")
        + _decode_functions(scheme, level)
    )
    return with_tile(before, f"{name}(n0, n1, codes, {parameters(scheme)}y, across, down)", body)


@register("scheme_decode", backend="cpu", variant="captured", requires=compiled)
def build_decode(kernel: SchemeDecode, isa: str | None = None) -> WithParams:
    scheme = kernel.scheme
    text = decode_text(scheme, levels.select(isa), "tile")
    return WithParams(Native(text), edges(scheme, len(scheme.stored) + 1))


@register("scheme_fit", backend="cpu", variant="captured", requires=compiled)
def build_fit(kernel: SchemeFit) -> WithParams:
    scheme = kernel.scheme
    captured = {"fit": scheme.captured_fit} if scheme.captured_fit is not None else {}
    if scheme.edges[0] == 1:
        block = per_block(scheme, fitted(scheme, "part(row, start, width)", "n"))
        body = f"K = x.shape[1]\nfor n in range(n0, n1):\n    row = row_at(x, n)\n{indented(block, 1)}"
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
{fitted(scheme, "block", "r")}"""
        body = "K = x.shape[1]\nfor r in range(r0, r1):\n    tall = smaller(down, x.shape[0] - r * down)\n" + indented(
            per_block(scheme, gather), 1
        )
        axis = "r"
    head = f"tile({axis}0, {axis}1, x, {parameters(scheme)}across, down)"
    text = with_tile(module(scheme, captured), head, body + "return np.int32(0)\n")
    return WithParams(Native(text), edges(scheme, 0))


@register("scheme_fit", backend="cpu", variant="interpreted", priority=-100)
def interpreted_fit(kernel: SchemeFit) -> Whole:
    return fit_step(kernel)


@register("scheme_decode", backend="cpu", variant="interpreted", priority=-100)
def interpreted_decode(kernel: SchemeDecode) -> Whole:
    return decode_step(kernel)
