"""CUDA without a GPU: memory as aligned as a device's, and the compiler where it is installed."""

import ml_dtypes
import numpy as np
import pytest

from tilework.kernels import factory
from tilework.kernels.cuda import compile as cuda_compile

TYPES = {"u8": np.uint8, "s8": np.int8, "s16": np.int16, "s32": np.int32}
REAL = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def _codes(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    if dtype in REAL:
        return rng.standard_normal(shape).astype(REAL[dtype])
    info = np.iinfo(TYPES[dtype])
    return rng.integers(info.min, info.max + 1, shape).astype(TYPES[dtype])


def _aligned(array):
    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    found = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


@pytest.fixture(scope="session")
def codes():
    """codes(dtype, shape, seed=0): random data over the whole range of a type; normal numbers for a real one."""
    return _codes


@pytest.fixture(scope="session")
def aligned():
    """aligned(array): a copy whose first byte is at a multiple of 256, as device memory is."""
    return _aligned


@pytest.fixture
def device_of():
    """device_of(kernel, variant=None): the implementation on CUDA."""
    return lambda kernel, variant=None: factory.get(kernel.name, "cuda", variant, kernel=kernel, dtypes=(), ranks=())


@pytest.fixture(scope="session")
def assembled(absent):
    """assembled(launch, cc): the kernel compiled and assembled for an architecture; skips without the tools."""
    reason = cuda_compile.missing()
    if reason is not None:
        absent(reason, "TILEWORK_REQUIRE_PTX")
    kept = {}

    def build(launch, cc):
        key = (launch.kernel, launch.parameters, launch.threads, cc)
        if key not in kept:
            kept[key] = cuda_compile.build_launch(launch, cc)
        return kept[key]

    return build
