"""Every executor there is, and kernels that are nothing but Python."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilework.executors import CudaExecutor, SingleThreadExecutor, TilingExecutor
from tilework.primitives.kernel import ArgSpec

EXECUTORS = {
    "reference": lambda: SingleThreadExecutor("reference"),
    "cpu": lambda: SingleThreadExecutor(),
    "debug": lambda: SingleThreadExecutor(debug=True),
    "cuda interpreter, not fused": lambda: CudaExecutor("interpreter", fuse=False),
    "tiled": lambda: TilingExecutor(threads=1),
    "tiled on 2": lambda: TilingExecutor(threads=2),
    "tiled on 3, not fused": lambda: TilingExecutor(threads=3, fuse=False),
}


@pytest.fixture(params=EXECUTORS.values(), ids=EXECUTORS)
def executor(request):
    return request.param()


@dataclass(frozen=True)
class PyKernel:
    """A kernel that runs `fn(ctx)` and has no compiled tiles."""

    name: str
    specs: tuple
    fn: Any

    def signature(self):
        return self.specs

    def execute(self, ctx):
        self.fn(ctx)


@pytest.fixture
def python_kernel():
    """python_kernel(name, fn, x=dtype, ..., y="write dtype"): slots of one dimension N, or `shape`."""

    def make(name, fn, shape=("N",), **slots):
        specs = []
        for slot, what in slots.items():
            access, _, dtype = what.rpartition(" ")
            specs.append(ArgSpec(slot, dtype, access or "read", shape=shape))
        return PyKernel(name, tuple(specs), fn)

    return make


@pytest.fixture
def unary(python_kernel):
    """unary(name, fn): y = fn(x), f32 of one dimension."""

    def make(name, fn, dtype="f32"):
        def run(ctx):
            ctx.write("y")[...] = fn(ctx.read("x"))

        return python_kernel(name, run, x=dtype, y=f"write {dtype}")

    return make


@pytest.fixture
def ramp():
    return np.arange(8, dtype=np.float32)
