"""Results are the same bits on every machine, instruction set level and version of Python: their hashes are kept here.

`python -m tilework.bench.checks.hashes` runs the same on every level. A hash changes only where what a step means does.
"""

import pytest

from tilework.bench.checks import hashes
from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.kernels.cpu import isa

RIGHT = {
    "int8_layer": "af60bd518f9e7846a78760b25baedbd5",
    "float_layer": "0a14e2692a31f908c200a39f6cd06053",
    "convolution": "7a44b2ee14e8edcfb42dca0cd5242332",
    "norms": "3045150ee9828089e39ceb0f7bb061f8",
    "mathematics": "a681331f823b2d8c518545f6b8d56e89",
    "codes_of_reals": "20185c8ff3b8a5a4d7f012c990d52d60",
    "reductions": "ed00ef58d5e3bf13abc7f27ca20ac4c0",
    "packed_weights": "b09a36425d66482ef86f935b14e2deb6",
    "attention": "207921146ab6392885c047d83c80f8b4",
}


def test_all_members_have_a_hash():
    assert set(RIGHT) == set(hashes.MEMBERS)


@pytest.mark.parametrize("name", RIGHT)
def test_results_have_the_hashes_that_are_kept(name):
    assert hashes.found(name, SingleThreadExecutor("reference")) == RIGHT[name]
    assert hashes.found(name, TilingExecutor(2)) == RIGHT[name]


@pytest.mark.parametrize("level", [level.name for level in isa.available()[:-1]][:1])
@pytest.mark.parametrize("name", ["int8_layer", "codes_of_reals"])
def test_a_lower_level_has_the_same(name, level):
    assert hashes.found(name, TilingExecutor(2, isa=level)) == RIGHT[name]


def test_the_words_are_those_of_the_formula():
    assert hashes.words(3, 1).tolist() == [int(w) for w in hashes.words(5, 1)[:3]]
    assert hashes.words(4, 0)[0] == 0
    assert hashes.words(2, 0)[1] == 0x514E28B7  # MurmurHash3's finalizer of 1
