"""The executor of CUDA devices, and of CUDA kernels without a device."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import inputs as doors
from ..single_thread import SingleThreadExecutor
from .host import Interpreter
from .plan import CudaPlan


class CudaExecutor(SingleThreadExecutor):
    """Runs a pipeline as one CUDA graph for each set of sizes.

    device   "cuda:0" and so on; or "interpreter", which executes the same graph (the same nodes, grids and arguments)
             on the CPU and checks every access: slow, for small sizes, exact
    fuse     whether element-wise steps may be compiled into the kernel before them
    tile     {step: tile}: tiles of a fixed size, to see what they do
    tuned    whether steps without a tile= take the one that `tilework bench sweep --save` found on this device
    seed     with "interpreter": of the order in which nodes, blocks and warps run, within what the graph allows
    debug    on a device: every step is launched and waited for by itself, so that an error names its step

    A step that has no CUDA kernel runs on the CPU, and `explain()` names it. Results are the CPU's to the bit.
    `close()`, or the end of a `with` block, gives back what it and its plans hold of the device.
    """

    backend = "cuda"

    def __init__(
        self,
        device: str = "cuda:0",
        *,
        fuse: bool = True,
        tile: Mapping[str, Mapping[str, int]] | None = None,
        tuned: bool = True,
        seed: int | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__("cuda", debug=debug)
        self.tile, self.tuned = {step: dict(t) for step, t in (tile or {}).items()}, tuned
        self.device_name, self.fuse, self.seed = device, fuse, seed
        self.runner = self._runner(device, seed, debug)
        self._plans: weakref.WeakSet[CudaPlan] = weakref.WeakSet()

    @staticmethod
    def _runner(device: str, seed: int | None, debug: bool) -> Any:
        if device == "interpreter":
            return Interpreter(seed)
        kind, _, number = device.partition(":")
        if kind != "cuda" or not (number or "0").isdigit():
            raise ArgumentError(f"device={device!r}; 'cuda:0', another number, or 'interpreter'")
        if seed is not None:
            raise ArgumentError(f"seed={seed} with device={device!r}; the order of a device cannot be drawn")
        return importlib.import_module(".driver", __package__).Driver(int(number or "0"), debug)

    @property
    def machine(self) -> str:
        """The name under which the tuning store keeps what was measured on this device."""
        cc = getattr(self.runner, "cc", None)
        return f"cuda-sm_{cc[0]}{cc[1]}" if cc else f"cuda-{self.device_name}"

    def __repr__(self) -> str:
        return f"CudaExecutor(device={self.device_name!r}{'' if self.fuse else ', fuse=False'})"

    def __enter__(self) -> CudaExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back kernels, CUDA graphs, streams and memory; arrays that runs have returned stay."""
        for plan in list(self._plans):
            plan.close()
        self.runner.close()

    def compile(self, pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]] | None = None) -> CudaPlan:
        """A plan. `shapes` ({input: shape}) makes its graph now instead of at the first run."""
        self.runner.check()
        plan = CudaPlan(pipe, self)
        self._plans.add(plan)
        if shapes is not None:
            for name in shapes:
                if name not in doors.wanted(pipe):
                    raise ArgumentError(
                        f"there is no input {name!r}; there is {', '.join(doors.wanted(pipe)) or 'none'}"
                    )
            plan.graph({name: tuple(shape) for name, shape in shapes.items()})
        return plan

    def run(
        self,
        pipe: Pipeline,
        inputs: Mapping[str, Any] | None = None,
        out: Mapping[str, Any] | str | None = None,
        *,
        stream: Any = None,
    ) -> dict[str, Any]:
        """Compile and run once: {output: array}, as `CudaPlan.run`. States start anew; keep a plan to keep them."""
        given = doors.as_mapping({} if inputs is None else inputs, "inputs")
        return self.compile(pipe.for_inputs(given)).run(inputs, out=out, stream=stream)
