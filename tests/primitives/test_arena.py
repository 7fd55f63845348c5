import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives.arena import GUARD_BYTES, POISON, Arena, BufferId, Request, lower_bound, plan_offsets
from tilework.primitives.errors import ArgumentError, GuardViolation
from tilework.primitives.layout import LayoutSpec

REQUESTS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 12), st.sampled_from([1, 16, 64, 4096])).map(
        lambda r: (r[0], min(r[1:3]), max(r[1:3]), r[3])
    ),
    max_size=25,
)


def random_graph(seed, n):
    """Buffers of a random graph: each is made by one step and read by some of the later ones, mostly near ones."""
    rng = random.Random(seed)
    sizes = rng.choice([lambda: rng.randint(1 << 10, 1 << 20), lambda: int(2 ** rng.uniform(10, 22))])
    return [(sizes(), s, min(n, s + 1 + int(rng.expovariate(1 / 4))), 64) for s in range(n)]


@given(REQUESTS)
def test_buffers_that_live_together_share_no_byte(requests):
    offsets, peak = plan_offsets(requests)
    for i, (size, first, last, align) in enumerate(requests):
        assert offsets[i] % align == 0
        assert 0 <= offsets[i] <= peak - size or size == 0
        for j in range(i):
            other, begin, end, _ = requests[j]
            if first <= end and begin <= last and size and other:
                assert offsets[i] + size <= offsets[j] or offsets[j] + other <= offsets[i]
    assert peak >= lower_bound(requests)
    assert peak == max((o + r[0] for o, r in zip(offsets, requests, strict=True) if r[0]), default=0)
    assert plan_offsets(requests) == (offsets, peak)


@pytest.mark.parametrize("n", [5, 20, 60])
def test_the_peak_is_within_ten_percent_of_the_largest_live_set(n):
    over = []
    for seed in range(40):
        requests = random_graph(seed, n)
        over.append(plan_offsets(requests)[1] / lower_bound(requests) - 1)
    assert max(over) <= 0.10
    assert np.mean(over) <= 0.02


def test_a_chain_needs_its_two_largest_neighbours():
    chain = [(1024 * (1 + i % 5), i, i + 1, 64) for i in range(1000)]
    offsets, peak = plan_offsets(chain)
    assert peak == lower_bound(chain) == 1024 * 9
    assert len(offsets) == 1000


def test_a_thousand_buffers_are_planned_as_well():
    requests = random_graph(1, 1000)
    assert plan_offsets(requests)[1] <= 1.10 * lower_bound(requests)


def test_the_lower_bound_is_the_largest_live_set():
    assert lower_bound([]) == 0
    assert lower_bound([(10, 0, 2), (20, 2, 3), (100, 3, 3), (5, 4, 9)]) == 120
    assert lower_bound([(10, 0, 2), (20, 3, 4)]) == 20


def test_no_buffers_and_empty_buffers_take_no_room():
    assert plan_offsets([]) == ([], 0)
    assert plan_offsets([(0, 0, 5, 64), (0, 0, 5, 64)]) == ([0, 0], 0)
    assert plan_offsets([(0, 0, 5, 64), (10, 0, 5, 64)]) == ([0, 0], 10)
    assert plan_offsets([(2**40, 0, 0, 64), (2**40, 0, 0, 64)])[1] == 2**41


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((-1, 0, 1, 64), "request 0: -1 bytes from step 0 to 1; a size is 0 or more"),
        ((8, 3, 2, 64), "a life does not end before it begins"),
        ((8, 0, 1, 48), "align is a power of two"),
        ((8.0, 0, 1, 64), "size is 8.0; a whole number is needed"),
        (Request(8, 0, "x", 64, "acc"), r"request 0 \(acc\): last step is 'x'"),
    ],
)
def test_requests_that_cannot_be_placed_are_refused(request_, message):
    with pytest.raises(ArgumentError, match=message):
        plan_offsets([request_])


def test_an_alias_extends_the_life_of_its_memory():
    # x is read by the last step, through its alias too; aux is never read, and z must not take the place of x.
    requests = [(64, 0, 3, 64), (64, 1, 2, 64), (64, 1, 1, 64), (64, 2, 3, 64), (64, 3, 4, 64)]
    x, y, aux, z, w = plan_offsets(requests)[0]
    assert len({x, y, aux}) == 3
    assert len({x, y, z}) == 3
    assert len({x, z, w}) == 3


def test_views_are_slices_of_one_aligned_block():
    arena = Arena([Request(100, 0, 1, 64, "a"), Request(50, 1, 2, 4096, "b"), Request(100, 2, 3, 64, "c")])
    assert arena.address % 4096 == 0
    for i in range(3):
        handle = BufferId(i)
        view = arena.view(handle)
        assert view.dtype == np.uint8
        assert view.size == arena.requests[i].size
        assert np.shares_memory(view, arena.memory)
        assert (arena.address + arena.offset(handle)) % arena.requests[i].align == 0
    assert not np.shares_memory(arena.view(BufferId(0)), arena.view(BufferId(1)))
    assert arena.lower_bound == 150
    assert arena.nbytes >= 150
    typed = LayoutSpec((5, 5)).view_on(arena.view(BufferId(0)), "f32")
    typed[...] = 1
    assert_array_equal(arena.view(BufferId(0)).view(np.float32), np.ones(25, np.float32), strict=True)
    for handle in (3, -1):
        with pytest.raises(ArgumentError, match=f"no buffer {handle}: the arena has 3"):
            arena.view(BufferId(handle))


def test_poison_fills_a_buffer_and_nothing_else():
    arena = Arena([(64, 0, 1, 64), (64, 0, 1, 64)])
    arena.view(BufferId(1))[:] = 7
    arena.poison(BufferId(0))
    assert (arena.view(BufferId(0)) == POISON).all()
    assert (arena.view(BufferId(1)) == 7).all()


@pytest.mark.parametrize("align", [1, 64, 4096])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_guards_name_the_buffer_that_was_left(size, align):
    arena = Arena([Request(size, 0, 1, align, "acc"), Request(40, 0, 1, 64, "other")], debug=True)
    acc, other = BufferId(0), BufferId(1)
    for handle in (acc, other):
        assert (arena.address + arena.offset(handle)) % arena.requests[handle].align == 0
        arena.begin(handle)
        assert (arena.view(handle) == POISON).all()
        arena.view(handle)[:] = 1
    arena.check_guards("gemm")
    at = arena.offset(acc)
    arena.memory[at + size] = 9
    message = (
        f"after 'gemm': something wrote outside its buffer: 'acc' ({size} bytes) has 1 changed guard bytes after it, "
        f"the nearest at byte {size}: 0x09 where 0xc3 was set"
    )
    with pytest.raises(GuardViolation, match=f"^{re.escape(message)}$"):
        arena.check_guards("gemm")
    arena.begin(acc)
    arena.memory[at - 2 : at] = 9
    with pytest.raises(GuardViolation, match=r"'acc'.*2 changed guard bytes before it, the nearest at byte -1"):
        arena.end(acc, "gemm")
    arena.begin(acc)
    arena.memory[at + size + GUARD_BYTES - 1] = 9
    assert len(arena.violations()) == 1
    assert f"at byte {size + GUARD_BYTES - 1}" in arena.violations()[0]


def test_guards_hold_while_buffers_share_memory_one_after_another():
    requests = [Request(1000 + i, i, i + 1, 64, f"b{i}") for i in range(20)]
    arena = Arena(requests, debug=True)
    assert arena.nbytes < 5 * 1200
    for step in range(21):
        for i, request in enumerate(requests):
            if request.first == step:
                arena.begin(BufferId(i))
                arena.view(BufferId(i))[:] = i
        arena.check_guards(f"step {step}")
        for i, request in enumerate(requests):
            if request.first <= step <= request.last:
                assert (arena.view(BufferId(i)) == i).all()
            if request.last == step:
                arena.end(BufferId(i))
                assert (arena.view(BufferId(i)) == POISON).all()


def test_outside_debug_mode_nothing_is_checked_or_filled():
    arena = Arena([(8, 0, 1, 8)])
    arena.view(BufferId(0))[:] = 3
    arena.begin(BufferId(0))
    arena.end(BufferId(0))
    arena.check_guards()
    assert (arena.view(BufferId(0)) == 3).all()
    assert repr(arena) == "Arena(1 buffers, 8 bytes, at least 8)"
