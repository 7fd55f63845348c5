"""The interpreter of CUDA kernels: what it computes, and what it finds wrong, by kernel, line and thread."""

import numpy as np
import pytest

from tilework.kernels.cuda import ptx
from tilework.kernels.cuda.interpreter import KernelFault, run
from tilework.kernels.cuda.interpreter.instructions import MEANING
from tilework.kernels.cuda.seam import cuda, device
from tilework.primitives.errors import ArgumentError

SEEDS = [None, 1, 2]
X = np.arange(128, dtype=np.int32)


def ran(kernel, *args, grid=(2,), block=(64,), seed=None):
    """Run over 128 elements and return the output."""
    y = np.full(128, -1, np.int32)
    run(kernel, grid, block, (X, y, *args), seed=seed)
    return y


def reversed_blocks(x, y):
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    shared[t] = x[cuda.blockIdx.x * 64 + t]
    cuda.syncthreads()
    y[cuda.blockIdx.x * 64 + t] = shared[63 - t]


@device
def twice_if_small(x):
    if x > 5:
        return x
    return 2 * x


def control_flow(x, y, n):
    i = cuda.grid(1)
    if i >= n:
        return
    total = 0
    for j in range(x[i] % 12):
        if j == 3:
            continue
        if j > 6:
            break
        total += j
    k = total
    while k > 10:
        k -= 4
    y[i] = twice_if_small(total) + k


def expected_flow(v):
    total = sum(j for j in range(v % 12) if j != 3 and j <= 6)
    k = total
    while k > 10:
        k -= 4
    return (total if total > 5 else 2 * total) + k


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_that_part_ways_each_get_their_own_result(seed):
    y = ran(control_flow, 100, seed=seed)
    assert y.tolist() == [expected_flow(v) for v in range(100)] + [-1] * 28


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_exchange_through_shared_memory_and_a_barrier(seed):
    assert ran(reversed_blocks, seed=seed).tolist() == [*range(63, -1, -1), *range(127, 63, -1)]


def without_barrier(x, y):
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    y[cuda.blockIdx.x * 64 + t] = shared[63 - t]


def overwritten_too_early(x, y):
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncthreads()
    v = shared[63 - t]
    shared[t] = v
    y[cuda.blockIdx.x * 64 + t] = v


def one_place_from_all(x, y):
    y[cuda.blockIdx.x] = x[cuda.threadIdx.x]


def between_blocks(x, y):
    t = cuda.threadIdx.x
    y[cuda.blockIdx.x * 64 + t] = x[t]
    y[(cuda.blockIdx.x * 64 + t + 64) % 128] = x[t]


def out_of_bounds(x, y):
    t = cuda.grid(1)
    y[t] = x[t + 1]


def before_the_start(x, y):
    t = cuda.grid(1)
    y[t] = x[t - 1]


def misaligned(x, y):
    words = ptx.load_x4(x, cuda.threadIdx.x)
    y[cuda.grid(1)] = words[0]


def nobody_wrote(x, y):
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    if t < 63:
        shared[t] = x[t]
    cuda.syncthreads()
    y[cuda.grid(1)] = shared[t]


def local_nobody_wrote(x, y):
    sums = cuda.local.array(2, np.int32)
    sums[0] = x[0]
    y[cuda.grid(1)] = sums[1]


def barrier_for_some(x, y):
    t = cuda.threadIdx.x
    if t < 40:
        cuda.syncthreads()
    y[cuda.grid(1)] = x[t]


def barrier_after_some_left(x, y):
    t = cuda.threadIdx.x
    if t >= 32:
        return
    cuda.syncthreads()
    y[t] = x[t]


def exchange_by_some(x, y):
    t = cuda.threadIdx.x
    v = np.int32(x[t])
    if t < 20:
        v = ptx.shfl_xor(v, np.int32(1))
    y[cuda.grid(1)] = v


def contracted(x, y):
    v = np.float32(x[0])
    y[cuda.grid(1)] = ptx.to_int(v * v + v)


def widened(x, y):
    v = np.float32(x[0])
    y[cuda.grid(1)] = ptx.to_int(ptx.mul(v, 0.1))


def one_or_the_other(x, y):
    t = cuda.grid(1)
    v = 0
    if t < 5:
        v = np.float32(x[t])
    y[t] = 1 if v == v else 0


def writes_its_input(x, y):
    x[cuda.grid(1)] = 1


def copy_not_waited_for(x, y):
    shared = cuda.shared.array(256, np.int32)
    t = cuda.threadIdx.x
    ptx.cp_async16(shared, t * 4, x, (t & 31) * 4, np.int32(16))
    ptx.cp_async_commit()
    y[cuda.grid(1)] = shared[t * 4]


def copy_seen_by_others_without_a_barrier(x, y):
    shared = cuda.shared.array(256, np.int32)
    t = cuda.threadIdx.x
    ptx.cp_async16(shared, t * 4, x, (t & 31) * 4, np.int32(16))
    ptx.cp_async_commit()
    ptx.cp_async_wait0()
    y[cuda.grid(1)] = shared[(63 - t) * 4]


def copy_past_the_end(x, y):
    shared = cuda.shared.array(256, np.int32)
    t = cuda.threadIdx.x
    ptx.cp_async16(shared, t * 4, x, t * 4, np.int32(16))
    ptx.cp_async_commit()
    ptx.cp_async_wait0()
    y[cuda.grid(1)] = shared[t * 4]


FAULTS = {
    without_barrier: ("race", "uninitialised"),
    overwritten_too_early: ("race",),
    one_place_from_all: ("race",),
    between_blocks: ("race",),
    out_of_bounds: ("bounds",),
    before_the_start: ("bounds",),
    misaligned: ("alignment",),
    nobody_wrote: ("uninitialised",),
    local_nobody_wrote: ("uninitialised",),
    barrier_for_some: ("deadlock",),
    barrier_after_some_left: ("deadlock",),
    exchange_by_some: ("divergence",),
    contracted: ("typing",),
    widened: ("typing",),
    one_or_the_other: ("typing",),
    writes_its_input: ("bounds",),
    copy_not_waited_for: ("race",),
    copy_seen_by_others_without_a_barrier: ("race", "uninitialised"),
    copy_past_the_end: ("bounds",),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernel", FAULTS, ids=lambda k: k.__name__)
def test_a_fault_names_kernel_line_and_thread(kernel, seed):
    x = X.copy()
    x.flags.writeable = False
    with pytest.raises(
        KernelFault, match=rf"kernel '{kernel.__name__}', test_cuda_interpreter\.py:\d+ `.*thread \("
    ) as found:
        run(kernel, (2,), (64,), (x, np.zeros(128, np.int32)), seed=seed)
    assert found.value.kind in FAULTS[kernel]


def test_a_barrier_between_warps_of_the_same_block_orders_only_that_block():
    with pytest.raises(KernelFault, match="race"):
        ran(between_blocks)


def reversed_warps(x, y):
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncwarp()
    y[cuda.grid(1)] = shared[t ^ 31]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_warp_barrier_orders_a_warp(seed):
    assert ran(reversed_warps, seed=seed)[:64].tolist() == [t ^ 31 for t in range(64)]


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_differ_and_results_do_not(seed):
    assert np.array_equal(ran(reversed_blocks, seed=seed), ran(reversed_blocks))


def test_a_launch_says_what_it_takes():
    with pytest.raises(ArgumentError, match="a multiple of 32"):
        run(reversed_blocks, (1,), (48,), (X, X.copy()))
    with pytest.raises(ArgumentError, match="has 2 parameters; 3 were given"):
        run(reversed_blocks, (1,), (64,), (X, X.copy(), 3))


def test_every_instruction_has_a_meaning():
    assert set(MEANING) == set(ptx.INSTRUCTIONS)


def test_an_instruction_outside_a_kernel_says_where_it_runs():
    with pytest.raises(TypeError, match="runs in a kernel"):
        ptx.dp4a_s8s8(1, 2, 3)
