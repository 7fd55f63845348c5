"""Text that encodes schemes whose codes are whole numbers nearest to quotients: nearest.py on one row after another.

A row is fitted, its divisors are inverted side by side, and it is encoded while the next one is fetched.
"""

from __future__ import annotations

from ...schemes.definition import WHOLE, Definition
from .. import isa, nearest
from .text import fitted, indented, load, per_block, zeros

APART = (
    '@njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)'  # what seldom runs is compiled once
)
RUN = 512  # weights of a long block that are divided where one of them is in doubt
_SCRATCH = ("low", "high", "bias", "shift")

_PRELUDE = """
from {package}.nearest import bracket, encoder
nearest = encoder({level!r}, {least}, {most}, {mask}, {shifted})


"""
_ROW = """\
row_from, one_from = np.int64(row.ctypes.data), np.int64(one.ctypes.data)
ahead = np.int64(row_at(x, smaller(n + 1, n1 - 1)).ctypes.data)
{fit}
groups = (K + across - 1) // across
for g in range(groups):
{load}
    low[g] = {divisor}
    bias[g] = np.float32({zero})
    shift[g] = np.float32({shift})
for g in range(0, groups, {lanes}):
    bracket({addresses})
{runs}
"""
# What is in doubt, and what is no whole vector, the functions encode as they were written.
_ENCODED = """\
whole = width // {lanes} * {lanes}
first = start
if not nearest(row_from + 4 * first, ahead + 4 * first, one_from + first, whole, low[g], high[g], bias[g], shift[g]):
    first += whole
if first < start + width:
{load}
    count = start + width - first
    encode_part(part(row, first, count), part(one, first, count), n * K + first{values})
"""


def quotient(scheme: Definition) -> nearest.Quotient | None:
    """What the scheme divides and rounds, where that is all that it does, in blocks of a vector and more."""
    across = scheme.edges[1]
    if scheme.encode is None or any(p.table for p in scheme.stored) or 0 <= across < nearest.LANES:
        return None
    return nearest.quotient(scheme.captured_encode, scheme.code_range)


def prelude(scheme: Definition, found: nearest.Quotient, level: isa.Level) -> str:
    """What a module needs before its tile."""
    return _PRELUDE.format(
        package=__package__.rpartition(".")[0],
        level=level.name,
        least=found.least,
        most=found.most,
        mask=(1 << scheme.bits) - 1,
        shifted=bool(found.shift),
    )


def made() -> str:
    """Statements before all rows."""
    room = f"(K + across - 1) // across + {nearest.LANES}"  # vectors are inverted whole
    return "\n".join(zeros(name, "f32", room) for name in _SCRATCH)


def rows(scheme: Definition, found: nearest.Quotient, fits: bool) -> str:
    """Statements that fit and encode the blocks of a row, `n`."""
    return _ROW.format(
        fit=per_block(scheme, fitted(scheme, "part(row, start, width)", "n")) if fits else "",
        load=indented(load(scheme, "r"), 1),
        divisor=found.divisor,
        zero=found.zero or "0",
        shift=found.shift or "0",
        lanes=nearest.LANES,
        addresses=", ".join(f"np.int64({name}.ctypes.data) + 4 * g" for name in ("low", "high", "bias")),
        runs=_runs(scheme),
    )


def _runs(scheme: Definition) -> str:
    """Statements that encode one row of every block, or a part of a long one after another."""
    values = "".join(f", s{n}" for n in range(len(scheme.stored)))
    encoded = _ENCODED.format(lanes=nearest.LANES, load=indented(load(scheme, "r"), 1), values=values)
    if scheme.edges[1] != WHOLE:
        return per_block(scheme, encoded)
    return (
        f"for g in range(groups):\n    for start in range(0, K, {RUN}):\n"
        f"        width = smaller({RUN}, K - start)\n{indented(encoded, 2)}"
    )
