"""What a GPU can do at most, measured: bytes a second of a copy, and int8 products a second of its tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilework as tw

from ...executors.cuda.context import Block
from ...executors.cuda.graph import OWN, Assembly, Buffer, own_buffers
from ...executors.cuda.memory import Part
from ...executors.recording import Operand
from ...kernels.cuda import ptx
from ...kernels.cuda.launch import At, Launch
from ...kernels.cuda.text import made
from .clock import Clock

THREADS = 256
CHAINS = 8  # products of a warp that do not wait for one another
PER_PRODUCT = 2 * 16 * 8 * 32  # operations of mma.m16n8k32


def copy_rate(clock: Clock, nbytes: int = 1 << 28) -> float:
    """Bytes a second of a copy within the device's memory, read and written."""
    driver = clock.driver
    with driver.entered():
        a, b = (Block(driver.context, nbytes, "a copy") for _ in range(2))

        def copy() -> None:
            driver.call(driver.api.cuMemcpyDtoDAsync(b.address, a.address, nbytes, driver.stream), "copy")

        time_s = clock.hot_s(copy)
    return 2 * nbytes / time_s


def product_kernel() -> Any:
    """Every warp multiplies in chains of its own, `rounds` times, and stores what no compiler can leave out."""
    state = [", ".join(f"c{chain}_{n}" for n in range(4)) for chain in range(CHAINS)]
    lines = ["def products(found, rounds):", "    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x"]
    lines += ["    a0 = np.int32(thread)", "    a1 = a0 ^ np.int32(0x5A5A)"]
    lines += [f"    c{chain}_{n} = np.int32(0)" for chain in range(CHAINS) for n in range(4)]
    lines += ["    for _ in range(rounds):"]
    lines += [f"        {row} = ptx.mma_m16n8k32_s8s8(a0, a1, a0, a1, a1, a0, {row})" for row in state]
    sums = " + ".join(f"c{chain}_{n}" for chain in range(CHAINS) for n in range(4))
    lines += [f"    found[thread] = np.int32({sums})"]
    room = ptx.__package__
    head = f"import numpy as np\nfrom {room} import ptx\nfrom {room}.seam import cuda\n\n\n"
    return made(head + "\n".join(lines) + "\n", "products")


def product_rate(clock: Clock, blocks: int = 1024, rounds: int = 4096) -> float:
    """int8 operations a second, two for each multiplication and addition."""
    warps = blocks * THREADS // 32
    size = blocks * THREADS
    launch = Launch(product_kernel(), ("s32*", "s64"), (blocks, 1, 1), (THREADS, 1, 1), (At(0), rounds), (0,))
    with OneGraph(clock.driver, [launch], size) as call:
        time_s = clock.hot_s(call, rounds=5)
    return warps * CHAINS * rounds * PER_PRODUCT / time_s


def empty(x: Any) -> None:
    """A kernel that does nothing."""


class OneGraph:
    """A call that launches a CUDA graph of these kernels, one after another, over one buffer of int32."""

    def __init__(self, driver: Any, launches: Sequence[Launch], size: int) -> None:
        self.driver = driver
        pipe = tw.Pipeline()
        tw.ops.neg(pipe.input("a", "s32", (1,)))  # stands for the step
        assembly = Assembly([*own_buffers(0), Buffer("found", "output", 4 * size)])
        for launch in launches:
            assembly.add(pipe.steps[0], pipe.steps[0].kernel, [launch], (), [Operand.make(OWN, 0, np.int32, (size,))])
        self._graph = assembly.graph()

    def __enter__(self) -> Callable[[], None]:
        self._loaded = self.driver.load(self._graph, {}, lambda memory: None)
        with self.driver.entered():
            self._memory = self._loaded.take({}, self.driver.stream)
        (part,) = [part for part in self._memory.parts if isinstance(part, Part)]
        return lambda: self.driver.launch(part, self.driver.stream)

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._loaded.close()


def empty_launch() -> Launch:
    return Launch(empty, ("s32*",), (1, 1, 1), (32, 1, 1), (At(0),), (0,))
