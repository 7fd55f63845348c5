"""Functions of integers that are written as LLVM IR do what Python does."""

import ctypes
import random

import numpy as np
import pytest

from tilework.kernels import forge
from tilework.kernels.cpu.integers import integers
from tilework.kernels.cpu.simd import address_of, get_s32, put_s32

pytestmark = pytest.mark.skipif(forge.jit_disabled(), reason="looks at compiled code")
LIMIT = 7


def halves(block, n):
    """A tuple, a loop that is left early, and conditions that end before what they guard is read."""
    found, odd = 0, 0
    for i in range(0, block[n], 2 if n else 3):
        if i > LIMIT and not (i % 5 == 0 or block[i % 4] < -3):
            break
        if i == 4:
            continue
        found += i if block[i % 4] > 2 else -i
        odd = odd ^ (i << 1) | (found & 3)
    while found > 100 and block[found % 4] != 0:
        found //= -3
    return found, odd


def mixed(block, a, c):
    x, y = halves(block, a & 3)
    low = high = a // c if c else 11
    if min(a, c, x) <= low < max(a, 5) or y != 0:
        low, high = -(a % c) if c != 0 else -1, low
    elif a == c:
        low = a - 1
    else:
        high = 3
    return x * 1000003 + y * 10007 + low * 101 + high


written_halves = integers(halves)
mixed_scope = {**globals(), "halves": written_halves}


def entry(bases, block, ranges):
    put_s32(address_of(ranges), 0, np.int32(get_s32(address_of(block), 2)))
    bases[0] = written_mixed(block, ranges[1], ranges[2])
    return 0


def _written_mixed():
    scope = dict(globals())
    scope["halves"] = written_halves
    made = type(mixed)(mixed.__code__, scope, "mixed")
    return integers(made)


written_mixed = _written_mixed()


def test_every_form_gives_what_python_gives():
    made = forge.entry(forge.Native("", raw=True, scope=(("entry", entry),)), 0, ())
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(made.address)
    rng = random.Random(0)
    for _ in range(500):
        block = np.array([rng.randint(-9, 40) for _ in range(4)], np.int64)
        ranges = np.array([0, rng.randint(-60, 60), rng.randint(-4, 4)], np.int64)
        found = np.zeros(1, np.int64)
        assert call(*(x.ctypes.data for x in (found, block, ranges))) == 0
        assert found[0] == mixed([int(b) for b in block], int(ranges[1]), int(ranges[2]))


def test_what_is_not_known_names_its_line():
    @integers
    def opens(block, n):
        return block[n] ** 2

    def outer(bases, block, ranges):
        bases[0] = opens(block, 1)
        return 0

    with pytest.raises(Exception, match=r"opens, line 3: 'block\[n\] \*\* 2' is not known here"):
        forge.entry(forge.Native("# another\n", raw=True, scope=(("entry", outer),)), 0, ())
