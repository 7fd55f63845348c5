"""Functions of 8-bit codes, however long, as one table of 256 entries.

Between a DequantizeLinear and a QuantizeLinear, any chain of element-wise operators that reads one tensor of 8-bit
codes (and constants of one element) maps each code to one code: exactly what a table of 256 entries says. The chain is
evaluated on all 256 codes by the meaning of its steps, so the table holds what the steps would have given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.reference import quantize as reference
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ..node import Coded, Node, Tabled
from ..scope import Scope

ENTRIES = 256


def root_of(scope: Scope, codes: Value) -> tuple[Value, np.ndarray[Any, Any]]:
    """The codes that a value is a table look-up of, and the table; the value itself and each code otherwise."""
    kept = scope.lookups.get(id(codes))
    if kept is not None:
        return kept[0], kept[1]
    assert codes.dtype is not None
    return codes, np.arange(ENTRIES, dtype=np.uint8).view(codes.dtype.numpy)


def as_table(scope: Scope, operand: Any) -> Tabled | None:
    """An operand as a table over 8-bit codes, where it is a function of such codes alone."""
    if isinstance(operand, Tabled):
        return operand
    if not isinstance(operand, Coded) or not isinstance(operand.codes, Value) or operand.codes.dtype is None:
        return None
    known = all(x is None or isinstance(x, np.ndarray) for x in (operand.scale, operand.zero_point))
    if operand.codes.dtype.name not in ("u8", "s8") or not operand.per_tensor or not known:
        return None
    kept = scope.tabled.get(id(operand))
    if kept is None:
        root, table = root_of(scope, operand.codes)
        flat = Coded(table, operand.scale.reshape(()), _flat(operand.zero_point), 0, 0, operand.dtype)
        kept = operand, Tabled(root, scope.settle(flat), lambda: scope.value(operand))
        scope.tabled[id(operand)] = kept
    return kept[1]


def _flat(zero_point: Any) -> Any:
    return None if zero_point is None else zero_point.reshape(())


def apply(node: Node, translate: Callable[[Node], Any]) -> Any:
    """The node as a table, where its operands allow; else its steps."""
    scope = node.scope
    operands = [scope.settle(node.operand(n)) for n in range(len(node))]
    tables = [as_table(scope, x) for x in operands]
    roots = {id(t.codes) for t in tables if t is not None}
    scalars = all(
        t is not None or x is None or (isinstance(x, np.ndarray) and x.size == 1 and x.ndim <= t_rank(tables))
        for t, x in zip(tables, operands, strict=True)
    )
    if len(roots) != 1 or not scalars:
        return translate(node)
    found = next(t for t in tables if t is not None)
    given = [
        t.numbers if t is not None else None if x is None else x.reshape(())
        for t, x in zip(tables, operands, strict=True)
    ]
    numbers = scope.evaluate(lambda inner: translate(node.on(inner, given)), [])
    return Tabled(found.codes, numbers, lambda: translate(node))


def t_rank(tables: list[Tabled | None]) -> int:
    return max((len(t.shape) for t in tables if t is not None), default=0)


def quantized(scope: Scope, operand: Tabled, scale: Any, zero_point: Any, dtype: str) -> Value | None:
    """The codes of a table's numbers as a look-up, where the numbers are real. scale, zero_point: of one element."""
    numbers, s = operand.numbers, scale.reshape(())
    if numbers.dtype != np.float32 or s.dtype != np.float32 or not 0 < s < np.inf:
        return None
    kind = dtypes.get(dtype)
    zero = 0 if zero_point is None else zero_point.reshape(())
    table = reference.quantize(numbers, s, zero, lo=int(kind.min), hi=int(kind.max), dtype=kind.numpy)
    codes = ops.lookup(operand.codes, table)
    scope.lookups[id(codes)] = operand.codes, table, codes
    return codes
