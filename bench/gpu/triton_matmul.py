"""An int8 product in Triton, as a peer: blocks of 128 x 128 over steps of 64, sizes that are multiples of them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK, STEP = 128, 64


@triton.jit
def _kernel(a, b, c, n_size, k_size, block: tl.constexpr, step: tl.constexpr):
    m = tl.program_id(0) * block + tl.arange(0, block)
    n = tl.program_id(1) * block + tl.arange(0, block)
    k = tl.arange(0, step)
    sums = tl.zeros((block, block), tl.int32)
    for k0 in range(0, k_size, step):
        x = tl.load(a + m[:, None] * k_size + (k0 + k)[None, :])
        y = tl.load(b + (k0 + k)[:, None] * n_size + n[None, :])
        sums += tl.dot(x, y, out_dtype=tl.int32)
    tl.store(c + m[:, None] * n_size + n[None, :], sums)


def matmul(a: Any, b: Any, c: Any) -> Any:
    """c = a @ b of int8 tensors on the device; ValueError for sizes that are no multiples of the blocks."""
    (m, k), n = a.shape, b.shape[1]
    if m % BLOCK or n % BLOCK or k % STEP:
        raise ValueError(f"{m} x {k} x {n}: multiples of {BLOCK}, {STEP} and {BLOCK} are needed")
    with torch.cuda.device(a.device):
        _kernel[(m // BLOCK, n // BLOCK)](a, b, c, n, k, block=BLOCK, step=STEP, num_warps=8, num_stages=3)
    return c
