"""tilework as a backend of the onnx package: its interface, so that its own test suite runs.

    import onnx.backend.test
    from tilework.frontends.onnx import backend

    suite = onnx.backend.test.BackendTest(backend, __name__)

`python -m tilework.bench.checks.onnx_suite` runs the suite and counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ...executors import SingleThreadExecutor
from ...primitives.errors import ArgumentError
from .load import _inputs, load
from .reading import read


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that was loaded; `run` takes its inputs in order, or by name."""

    def __init__(self, model: Any, executor: SingleThreadExecutor | None = None) -> None:
        self.pipeline = load(model)
        self.inputs = [v.name for v in _inputs(read(model))]
        self.outputs = [v.name for v in model.graph.output]
        self.executor = executor or SingleThreadExecutor()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        given = dict(inputs) if isinstance(inputs, dict) else dict(zip(self.inputs, inputs, strict=False))
        found = self.executor.run(self.pipeline, {name: np.asarray(x) for name, x in given.items()})
        result: tuple[Any, ...] = namedtupledict("Outputs", self.outputs)(*(found[name] for name in self.outputs))
        return result


class TileworkBackend(Backend):  # type: ignore[misc]
    """The class whose methods the module offers as functions, as the interface asks."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Prepared:
        if not cls.supports_device(device):
            raise ArgumentError(f"device {device!r}; CPU works")
        return Prepared(model)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        helper, arrays = onnx.helper, [np.asarray(x) for x in inputs]
        names = [name for name in node.input if name]
        kinds = helper.np_dtype_to_tensor_dtype
        given = [helper.make_tensor_value_info(n, kinds(x.dtype), x.shape) for n, x in zip(names, arrays, strict=True)]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], "node", given, results))
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"


prepare = TileworkBackend.prepare
run_model = TileworkBackend.run_model
run_node = TileworkBackend.run_node
supports_device = TileworkBackend.supports_device
is_compatible = TileworkBackend.is_compatible
