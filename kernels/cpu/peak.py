"""What this machine can do at most: probed, never taken from a data sheet.

Arithmetic: chains of one instruction on registers alone, as many as hide its latency. Memory: summing an array.
Every probe is a call that can stand among the contenders of a paired timing, with its work per call beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Array = np.ndarray[Any, Any]
STEPS = 100_000  # of each chain in a call: about half a millisecond
READ = 64 << 20  # bytes that a call on several threads reads
BATCH = 6  # vpmaddwd before the vpaddd that take their results; measured, others are up to a fifth slower

# per level: instruction on (sum, x, y), its vector's bytes, 8-bit products that one adds, independent chains
_DOT = {
    "avx512_vnni": ("vpdpbusd", 64, 64, 24),
    "avx_vnni": ("{vex} vpdpbusd", 32, 32, 12),
    "avx512": ("vpmaddwd", 64, 32, 24),
    "avx2": ("vpmaddwd", 32, 16, 6),
}
_FMA = {"avx512_vnni": (64, 24), "avx512": (64, 24), "avx_vnni": (32, 12), "avx2": (32, 12)}


@dataclass(frozen=True)
class Probe:
    """A call, how much work it does (operations or bytes), and what it shows."""

    name: str
    call: Callable[[], Any]
    work: float


def dot(level: str, threads: int = 1) -> Probe | None:
    """The most int8 multiplications and additions that the level's instruction reaches; None where none is known.

    vpmaddwd leaves pairs of sums that a vpaddd must add up, so both are in the loop.
    """
    if level not in _DOT:
        return None
    name, width, products, chains = _DOT[level]
    return _probe(name.rpartition(" ")[2], _chain(name, width, chains), 2 * products * chains * STEPS, threads)


def fma(level: str, threads: int = 1) -> Probe | None:
    """The most float32 multiplications and additions."""
    if level not in _FMA:
        return None
    width, chains = _FMA[level]
    return _probe("vfmadd231ps", _chain("vfmadd231ps", width, chains), 2 * width // 4 * chains * STEPS, threads)


def read(nbytes: int, threads: int = 1) -> Probe:
    """Reading an array of this size again and again, split between the threads; its work is in bytes."""
    data = np.ones(nbytes // 8, np.int64)
    parts = np.array_split(data, threads)
    times = max(1, (READ if threads > 1 else 1 << 20) // nbytes)  # so that starting a call does not count
    return Probe("read", _together([partial(_sum(), part, times) for part in parts]), times * data.nbytes)


def triad(nbytes: int, threads: int = 1) -> Probe:
    """a = b + s * c over three float32 arrays of so many bytes together; its work is in bytes."""
    n = max(16, nbytes // 12 // 16 * 16)
    arrays = [np.ones(n, np.float32) for _ in range(3)]
    parts = list(zip(*(np.array_split(x, threads) for x in arrays), strict=True))
    times = max(1, (READ if threads > 1 else 1 << 20) // nbytes)
    return Probe("triad", _together([partial(_triad(), *part, times) for part in parts]), times * 12.0 * n)


def _probe(name: str, run: Any, work: float, threads: int) -> Probe:
    memory = [np.zeros(64, np.int32) for _ in range(threads)]
    more = 1 if threads == 1 else 8  # so that starting the threads does not count
    return Probe(name, _together([partial(_chains, run, more * STEPS, m) for m in memory]), more * work * threads)


def _chains(run: Any, steps: int, memory: Array) -> None:
    run(steps, memory.ctypes.data)


def _together(calls: list[Callable[[], Any]]) -> Callable[[], Any]:
    """All calls at once, each on a thread; they release the GIL."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        others = [threading.Thread(target=call) for call in calls[1:]]
        for thread in others:
            thread.start()
        calls[0]()
        for thread in others:
            thread.join()

    return run


@lru_cache(maxsize=8)
def _chain(instruction: str, width: int, chains: int) -> Any:
    """A compiled function (steps, address): `chains` independent sums, each `steps` instructions long."""
    llvm.initialize_native_asmparser()
    word = ir.FloatType() if instruction.startswith("vfm") else ir.IntType(32)
    kind = ir.VectorType(word, width // 4)

    def assembly(text: str, constraint: str, n: int) -> Any:
        # opaque to LLVM, which would take loop-invariant work out of the loop
        return ir.InlineAsm(ir.FunctionType(kind, [kind] * n), text, constraint, side_effect=True)

    def advance(builder: Any, sums: list[Any], x: Any) -> list[Any]:
        if instruction != "vpmaddwd":
            more = assembly(f"{instruction} $3, $2, $0", "=v,0,v,v", 3)
            return [builder.call(more, [total, x, x]) for total in sums]
        multiply, add = (assembly(f"{name} $2, $1, $0", "=v,v,v", 2) for name in ("vpmaddwd", "vpaddd"))
        new = []
        for n in range(0, chains, BATCH):
            pairs = [builder.call(multiply, [x, x]) for _ in sums[n : n + BATCH]]
            new += [builder.call(add, [p, s]) for p, s in zip(pairs, sums[n : n + BATCH], strict=True)]
        return new

    @intrinsic
    def emit(typingctx: Any, steps: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            steps, address = args
            i64 = ir.IntType(64)
            pointer = builder.inttoptr(address, kind.as_pointer())
            x = builder.load(pointer)
            x.align = 4
            before, loop, done = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.branch(loop)
            builder.position_at_end(loop)
            k = builder.phi(i64)
            k.add_incoming(ir.Constant(i64, 0), before)
            sums = [builder.phi(kind) for _ in range(chains)]
            new = advance(builder, sums, x)
            following = builder.add(k, ir.Constant(i64, 1))
            k.add_incoming(following, loop)
            for total, value in zip(sums, new, strict=True):
                total.add_incoming(x, before)
                total.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, steps), loop, done)
            builder.position_at_end(done)
            for value in new:
                builder.store(value, pointer).align = 4
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @njit("void(int64, int64)", nogil=True)
    def run(steps: int, address: int) -> None:
        emit(steps, address)

    return run


@lru_cache(maxsize=1)
def _sum() -> Any:
    """A compiled function (array, times): compiled when it is first asked for, because that takes a while."""

    @njit("int64(int64[::1], int64)", nogil=True, error_model="numpy")
    def run(x: Array, times: int) -> int:
        total = 0
        for n in range(times):
            for i in range(x.size):
                total += x[i] ^ n  # another sum each time, or one pass would do for all
        return total

    return run


@lru_cache(maxsize=1)
def _triad() -> Any:
    """A compiled function (a, b, c, times)."""

    @njit("void(float32[::1], float32[::1], float32[::1], int64)", nogil=True, error_model="numpy")
    def run(a: Array, b: Array, c: Array, times: int) -> None:
        for n in range(times):
            s = np.float32(n)
            for i in range(a.size):
                a[i] = b[i] + s * c[i]

    return run
