"""abs_distances: the sum of absolute differences between every row of a and every row of b."""

from dataclasses import dataclass

import numpy as np
from numba import njit

import tilework as tw
from tilework.primitives.storage import stored_as


@stored_as("tilework_blas.abs_distances")
@dataclass(frozen=True)
class AbsDistances:
    """y[m, n] = sum over k of |a[m, k] - b[n, k]|."""

    @property
    def name(self):
        return "abs_distances"

    def signature(self):
        return (
            tw.ArgSpec("a", "u8", shape=("M", "K"), follows=("m", None)),
            tw.ArgSpec("b", "u8", shape=("N", "K"), follows=("n", None)),
            tw.ArgSpec("y", "s32", "write", shape=("M", "N"), follows=("m", "n")),
        )

    def index_space(self):
        return tw.IndexSpace((tw.Axis("m", "M"), tw.Axis("n", "N")))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("a"), ctx.read("b"), ctx.write("y"))


def abs_distances(a, b):
    """Add the step to the pipeline of `a`: u8 (M, K) and u8 (N, K) to s32 (M, N)."""
    return a.pipeline.add(AbsDistances(), a=a, b=b)


@tw.factory.register("abs_distances", backend="reference")
def meaning():
    def fn(a, b, y):
        y[...] = np.abs(a[:, None, :].astype(np.int32) - b[None, :, :]).sum(axis=2, dtype=np.int32)

    return tw.factory.Whole(fn)


@njit(nogil=True, error_model="numpy")
def tile(m0, m1, n0, n1, a, b, y):
    for m in range(m0, m1):
        for n in range(n0, n1):
            total = np.int32(0)
            for k in range(a.shape[1]):
                total += np.int32(abs(np.int32(a[m, k]) - np.int32(b[n, k])))
            y[m, n] = total


@tw.factory.register("abs_distances", backend="cpu")
def on_cpu():
    return tile
