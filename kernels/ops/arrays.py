"""Steps that NumPy carries out on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...primitives import dtypes
from ...primitives.errors import Unsupported
from ...primitives.pipeline import Value
from ..arrays import ArrayStep
from .given import Operand, dtype_of, pipeline_of, value_of


def apply_array(function: str, *operands: Operand, results: Sequence[str] = (), **attributes: Any) -> tuple[Value, ...]:
    """The results of a named function of whole arrays (kernels/reference/arrays/).

    results     type of each; left out: one, of the type of the first operand
    attributes  numbers, texts, lists of them; None is left out
    """
    pipe = pipeline_of(function, *operands)
    given = [value_of(pipe, x, function, f"operand {n}") for n, x in enumerate(operands)]
    for value in given:
        if value.dtype is None or value.dtype.packed:
            raise Unsupported(f"{function}: an operand is {dtype_of(value)}; unpacked types work")
    kinds = tuple(dtypes.get(kind).name for kind in results) or (dtype_of(given[0]),)
    plain = tuple(
        (name, tuple(x) if isinstance(x, (list, tuple)) else x) for name, x in attributes.items() if x is not None
    )
    kernel = ArrayStep(function, tuple((dtype_of(v), v.ndim) for v in given), kinds, plain)
    slots: dict[str, Any] = {f"x{n}": v for n, v in enumerate(given)}
    made = pipe.add(kernel, **slots)
    return made if isinstance(made, tuple) else (made,)
