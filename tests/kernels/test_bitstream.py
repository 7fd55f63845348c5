"""Rows of codes as a stream of bits: every width, lengths around whole words, nothing written behind the row."""

import numpy as np
import pytest
from numba import njit

from tilework.kernels.cpu import bitstream
from tilework.kernels.schemes.packing import pack


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7])
def test_rows_are_packed_and_back(bits):
    packer, unpacker = bitstream.packer(bits), bitstream.unpacker(bits)

    @njit
    def run(codes, packed, back, n):
        packer(codes, packed, n)
        unpacker(packed, back, n)

    rng = np.random.default_rng(bits)
    for n in [*range(1, 40), 63, 64, 65, 127, 128, 129, 511]:
        codes = np.zeros(bitstream.padded(n), np.uint8)
        codes[:n] = rng.integers(0, 1 << bits, n)
        right = pack(codes[:n].astype(np.int32)[None], bits)[0]
        memory = np.full(right.size + 64, 0xA5, np.uint8)
        back = np.full(bitstream.padded(n), 0x5A, np.uint8)
        run(codes, memory[: right.size], back, n)
        np.testing.assert_array_equal(memory[: right.size], right)
        assert (memory[right.size :] == 0xA5).all()
        np.testing.assert_array_equal(back[:n], codes[:n])
