"""Every op on arrays, at once: `eager.gemm(a, w)` makes a pipeline of one op, runs it and returns the array.

For trying things out. What runs again and again belongs in a pipeline, which is checked and laid out once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels import ops
from ..primitives.buffer import Buffer
from ..primitives.pipeline import Pipeline, Value
from .single_thread import SingleThreadExecutor

executor = SingleThreadExecutor()


def _is_tensor(given: Any) -> bool:
    """Whether it is another library's array; NumPy's scalars are numbers."""
    return not isinstance(given, np.generic) and (hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__"))


def _eager(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        pipe = Pipeline(op.__name__)
        inputs: dict[str, Any] = {}

        def enter(n: int, given: Any) -> Any:
            if n == 0 and isinstance(given, (list, tuple)) and any(_is_tensor(x) for x in given):
                return [enter(m, x) for m, x in enumerate(given)]
            if n > 0 and isinstance(given, (Buffer, np.ndarray)):
                return pipe.constant(given)  # known here and now: sums are proven from what it holds
            if isinstance(given, Buffer):
                name = f"operand_{len(inputs)}"
                inputs[name] = given
                return pipe.input(name, given.dtype, given.shape, given.layout.axes, given.quant)
            if isinstance(given, np.ndarray) or _is_tensor(given):
                name = f"operand_{len(inputs)}"
                inputs[name] = buffer = Buffer.from_array(given)
                return pipe.input(name, buffer.dtype, buffer.shape)
            return given

        names = [p.name for p in inspect.signature(op).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        while len(args) < len(names) and names[len(args)] in kwargs:  # gemm(a=.., b=..) is gemm(.., ..)
            args = (*args, kwargs.pop(names[len(args)]))
        found = op(*(enter(n, a) for n, a in enumerate(args)), **kwargs)
        values: tuple[Value, ...] = found if isinstance(found, tuple) else (found,)
        for n, value in enumerate(values):
            pipe.output(f"y{n}", value)
        results = executor.run(pipe, inputs)
        arrays = tuple(results[f"y{n}"] for n in range(len(values)))
        return arrays if isinstance(found, tuple) else arrays[0]

    call.__name__ = call.__qualname__ = op.__name__
    call.__doc__ = f"`ops.{op.__name__}` on arrays, at once.\n\n{op.__doc__ or ''}"
    return call


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in ops.__all__:
        raise AttributeError(f"there is no op {name!r}; there is {', '.join(sorted(ops.__all__))}")
    return _eager(getattr(ops, name))


def __dir__() -> list[str]:
    return sorted(ops.__all__)
