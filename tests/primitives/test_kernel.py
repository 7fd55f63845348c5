"""The kernel contract: slots, index spaces, intervals."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.primitives.errors import DTypeMismatch, LayoutError, PipelineError, SizeError
from tilework.primitives.kernel import Affine, ArgSpec, Axis, IndexSpace, Kernel, index_space, signature
from tilework.primitives.sizes import size


class Copy:
    name = "copy"

    def signature(self):
        return (ArgSpec("x", "u8", shape=("N",)), ArgSpec("y", "u8", "write", shape=("N",)))

    def execute(self, ctx):
        ctx.write("y")[...] = ctx.read("x")


def test_any_object_with_the_three_members_is_a_kernel():
    assert isinstance(Copy(), Kernel)
    assert [spec.slot for spec in signature(Copy())] == ["x", "y"]
    assert index_space(Copy()) is None


def test_an_argspec_takes_any_spelling_of_a_type():
    assert ArgSpec("x", "float32").dtype == "f32"
    assert ArgSpec("x", ("i8", "uint8")).dtype == ("s8", "u8")
    assert ArgSpec("x", "=a").dtype == "=a"
    assert ArgSpec("x", None).dtype is None
    assert ArgSpec("f", "function").dtype == "function"
    assert ArgSpec("n", "shape").dtype == "shape"
    assert ArgSpec("x", "u8", shape=("...", "2*M", 3)).shape == ("...", size("2*M"), 3)


def test_an_update_slot_reads_and_writes():
    for access, reads, writes in (("read", True, False), ("write", False, True), ("update", True, True)):
        spec = ArgSpec("x", "u8", access)
        assert (spec.reads, spec.writes) == (reads, writes)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ArgSpec("x", "u9"), DTypeMismatch, "no data type 'u9'"),
        (
            lambda: ArgSpec("x", "u8", "readwrite"),
            PipelineError,
            "access 'readwrite'; it is one of read, write, update",
        ),
        (lambda: ArgSpec("x y", "u8"), PipelineError, "slot 'x y' is not a name"),
        (lambda: ArgSpec("x", "u8", strides="dense"), LayoutError, "strides 'dense'; any, rows or contiguous"),
        (lambda: ArgSpec("x", "u8", shape=("M/2",)), SizeError, "cannot be read"),
        (lambda: IndexSpace((Axis("m", "M"), Axis("m", "N"))), PipelineError, "names its axes once each, not m, m"),
        (lambda: IndexSpace((Axis("m", "M", multiple=0),)), PipelineError, "axis 'm' is cut at multiples of 0"),
    ],
)
def test_a_malformed_declaration_says_what_would_work(make, error, says):
    with pytest.raises(error, match=says):
        make()


class Missing:
    name = "missing"

    def execute(self, ctx): ...


class Odd:
    name = "odd"
    slots = ()
    space = None

    def signature(self):
        return self.slots

    def index_space(self):
        return self.space

    def execute(self, ctx): ...


def test_what_is_no_kernel_is_told_what_it_lacks():
    with pytest.raises(PipelineError, match="Missing is not a kernel: it has no 'signature'"):
        signature(Missing())
    odd = Odd()
    for slots, says in (
        ((ArgSpec("x", "u8"),), "writes nothing"),
        ((ArgSpec("x", "u8"), ArgSpec("x", "u8", "write")), "has a slot twice: x, x"),
        (("x",), "it is made of ArgSpec"),
    ):
        odd.slots = slots
        with pytest.raises(PipelineError, match=says):
            signature(odd)
    odd.space = ("m",)
    with pytest.raises(PipelineError, match="index_space is tuple; return an IndexSpace"):
        index_space(odd)


@given(
    st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(0, 9), st.integers(1, 9), st.integers(0, 60)
)
def test_an_affine_interval_holds_exactly_what_its_range_needs(step, before, after, r0, length, extent):
    lo, hi = Affine("m", step, before, after).interval(r0, r0 + length, extent)
    needed = {step * r + d for r in range(r0, r0 + length) for d in range(-before, after + 1)}
    needed = sorted(n for n in needed if 0 <= n < extent)
    if needed:
        assert (lo, hi) == (needed[0], needed[-1] + 1) or step > before + after + 1
        assert lo <= needed[0]
        assert hi >= needed[-1] + 1
    assert 0 <= lo <= extent
    assert 0 <= hi <= extent


def test_an_axis_knows_its_size_as_an_expression():
    assert Axis("m", "2*M").size() == size("2*M")
    assert Axis("m", 5).size() == 5
    assert np.int64(Axis("m", np.int64(5)).size()) == 5


def test_what_a_kernel_says_is_kept_only_where_it_cannot_change():
    class Growing:
        name, slots = "growing", 1

        def signature(self):
            return tuple(ArgSpec(f"y{n}", "u8", "write") for n in range(self.slots))

        def execute(self, ctx): ...

    kernel = Growing()
    assert len(signature(kernel)) == 1
    kernel.slots = 2
    assert len(signature(kernel)) == 2

    @dataclass
    class Open(Growing):
        slots: int = 1

    @dataclass(frozen=True)
    class Closed(Growing):
        slots: int = 1

    @dataclass(frozen=True, slots=True)
    class Small:
        name: str = "small"

        def signature(self):
            return (ArgSpec("y", "u8", "write"),)

        def execute(self, ctx): ...

    opened, closed = Open(), Closed()
    assert len(signature(opened)) == len(signature(closed)) == 1
    opened.slots = 3
    assert len(signature(opened)) == 3
    assert signature(closed) is signature(closed)
    assert signature(Small()) == signature(Small())
