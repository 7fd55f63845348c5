"""Tiles of a stage on several threads: no thread is left with far more rows than its share."""

import numpy as np
import pytest

from tilework.executors import chaining
from tilework.executors.intervals import tiles_of

ROWS = 48  # what fits beside the weights


def shares(size, pieces, multiple, threads):
    """Rows of each thread, where tiles are dealt in turn."""
    tile = -(-size // pieces // multiple) * multiple
    lengths = np.diff(tiles_of(size, tile), axis=1)[:, 0]
    return [int(lengths[n::threads].sum()) for n in range(threads)]


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("multiple", [1, 6, 16])
def test_a_thread_has_no_more_than_before(threads, multiple):
    for size in (*range(96, 400, 7), 512, 1000, 1024, 4096):
        pieces = -(-max(threads, -(-size // ROWS)) // threads) * threads
        chosen = chaining._even(size, pieces, multiple, threads, ROWS, 1.5 * ROWS)
        assert max(shares(size, chosen, multiple, threads)) <= max(shares(size, pieces, multiple, threads))


def test_two_threads_get_the_same():
    assert shares(256, 6, 16, 2) == [144, 112]
    assert chaining._even(256, 6, 16, 2, ROWS, 1.5 * ROWS) == 4
    assert shares(256, 4, 16, 2) == [128, 128]
    assert chaining._even(256, 6, 16, 1, ROWS, 1.5 * ROWS) == 6
