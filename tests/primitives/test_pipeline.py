"""Pipelines: what is checked when an edge is made, the order of steps, composition, and how they print."""

from dataclasses import dataclass

import numpy as np
import pytest

from tilework.primitives.errors import (
    DTypeMismatch,
    LayoutError,
    PipelineError,
    QuantizationError,
    ShapeMismatch,
    SizeError,
    TileworkError,
)
from tilework.primitives.kernel import ArgSpec
from tilework.primitives.pipeline import Edge, Pipeline
from tilework.primitives.quantization import QuantParams
from tilework.primitives.sizes import size


@dataclass(frozen=True)
class Fake:
    """A kernel that is only a signature."""

    name: str
    specs: tuple

    def signature(self):
        return self.specs

    def execute(self, ctx): ...


UNARY = Fake("unary", (ArgSpec("x", "f32", shape=("...", "N")), ArgSpec("y", "f32", "write", shape=("...", "N"))))
MATMUL = Fake(
    "matmul",
    (
        ArgSpec("a", ("u8", "s8"), shape=("M", "K")),
        ArgSpec("b", "s8", shape=("K", "N")),
        ArgSpec("y", "s32", "write", shape=("M", "N")),
    ),
)
SPLIT = Fake(
    "split",
    (
        ArgSpec("x", None, shape=("2*H", "W")),
        ArgSpec("top", "=x", "write", shape=("H", "W")),
        ArgSpec("bottom", "=x", "write", shape=("H", "W")),
    ),
)
JOIN = Fake("join", (ArgSpec("a", "f32"), ArgSpec("b", "f32"), ArgSpec("y", "f32", "write")))
UPDATE = Fake("update", (ArgSpec("x", "f32", shape=("N",)), ArgSpec("s", "f32", "update", shape=("N",))))
SCALED = Fake(
    "scaled",
    (ArgSpec("x", "f32", shape=("N",)), ArgSpec("s", "s8", shape=()), ArgSpec("y", "f32", "write", shape=("N",))),
)


def chain(n, pipe=None):
    pipe = pipe or Pipeline("chain")
    value = pipe.input("x", "f32", ("N",))
    for _ in range(n):
        value = pipe.add(UNARY, x=value)
    pipe.output("y", value)
    return pipe


# Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declare", "error", "says"),
    [
        (lambda p: p.input("x", "f32", ("N",)), PipelineError, "the name 'x' is taken: <input x: f32 \\(N,\\)>"),
        (lambda p: p.constant("x", np.ones(2)), PipelineError, "the name 'x' is taken"),
        (lambda p: p.input("", "f32", ()), PipelineError, "a input needs a name|an input needs a name"),
        (lambda p: p.input("z", "f99", ()), DTypeMismatch, "no data type 'f99'"),
        (lambda p: p.input("z", "f32", (-1,)), ShapeMismatch, "sizes are 0 or more"),
        (lambda p: p.input("z", "f32", ("N/2",)), SizeError, "cannot be read"),
        (lambda p: p.input("z", "f32", (1, 2), axes="NN"), LayoutError, "one distinct letter per dimension"),
        (lambda p: p.input("z", "f32", (1, 2), axes="NHW"), LayoutError, "axes 'NHW' for shape"),
        (lambda p: p.constant("z", np.ones(2, ">f4")), DTypeMismatch, "byte order"),
        (lambda p: p.constant("z", np.ones(2, complex)), DTypeMismatch, "complex"),
        (lambda p: p.constant("z", np.array([None])), DTypeMismatch, "object"),
        (lambda p: p.input("z", "u8", (4, 3), quant=QuantParams(np.ones(4, np.float32), axis=1)), TileworkError, "4"),
        (lambda p: p.state("z", "f32", (3,), np.zeros(4, np.float32)), ShapeMismatch, "does not broadcast to"),
        (lambda p: p.state("z", "f32", (3,), np.zeros(3)), DTypeMismatch, "the state is f32"),
        (lambda p: p.state("z", "s8", (3,), 1.5), DTypeMismatch, "takes s8 .*not 1.5"),
        (lambda p: p.state("z", "s8", (3,), float("nan")), DTypeMismatch, "not nan"),
        (lambda p: p.state("z", "s8", (3,), 300), DTypeMismatch, "not 300"),
        (lambda p: p.state("z", "f32", (3,), 1e300), DTypeMismatch, "too large"),
    ],
)
def test_a_value_is_checked_when_it_is_declared(declare, error, says):
    pipe = Pipeline("p")
    pipe.input("x", "f32", ("N",))
    before = dict(pipe.values)
    with pytest.raises(error, match=says):
        declare(pipe)
    assert pipe.values == before


def test_a_constant_is_a_copy_that_nobody_can_change():
    pipe, given = Pipeline(), np.arange(4)
    value = pipe.constant(given)
    given[0] = 9
    assert value.data[0] == 0
    assert not value.data.flags.writeable
    state = pipe.state("s", "s64", (4,), given)
    given[1] = 9
    assert state.data[1] == 1


def test_any_name_will_do_for_a_shape_argument():
    value = Pipeline().argument("out-shape.1", "shape")
    assert value.dtype == "s64"
    assert value.ndim == 1
    assert Pipeline().argument("f", "function").dtype is None


# Edges ------------------------------------------------------------------------------------------------------------


def sources():
    pipe = Pipeline("p")
    return (
        pipe,
        pipe.input("x", "f32", ("N",)),
        pipe.input("a", "u8", ("M", 64)),
        pipe.constant("w", np.ones((64, 3), "i1")),
    )


EDGES = {
    "unknown slot": (lambda p, x, a, w: p.add(UNARY, z=x), PipelineError, "'unary' has no slot 'z'; it has x, y"),
    "missing input": (
        lambda p, x, a, w: p.add(MATMUL, a=a),
        PipelineError,
        r"'matmul' lacks its input 'b' \(s8 \(K, N\)\)",
    ),
    "dtype": (lambda p, x, a, w: p.add(UNARY, x=a), DTypeMismatch, "slot 'x' of 'unary' takes f32, but 'a' is u8"),
    "dtype of several": (lambda p, x, a, w: p.add(MATMUL, a=x, b=w), DTypeMismatch, "takes u8 or s8, but 'x' is f32"),
    "rank": (lambda p, x, a, w: p.add(MATMUL, a=p.input("r", "u8", ("M",)), b=w), ShapeMismatch, "rank 1"),
    "sizes": (
        lambda p, x, a, w: p.add(MATMUL, a=a, b=np.ones((63, 3), np.int8)),
        ShapeMismatch,
        r"slot 'b' of 'matmul', 'matmul.b_0' has shape \(63, 3\): axis 0 is 63, but 64 is asked for",
    ),
    "an odd size": (lambda p, x, a, w: p.add(SPLIT, x=np.ones((3, 2), "f4")), ShapeMismatch, "axis 0"),
    "another pipeline": (
        lambda p, x, a, w: p.add(UNARY, x=chain(1).outputs["y"]),
        PipelineError,
        "belongs to pipeline 'chain'",
    ),
    "a number out of range": (
        lambda p, x, a, w: p.add(SCALED, x=x, s=200),
        DTypeMismatch,
        "takes s8 .-128 to 127., not 200",
    ),
    "a fraction": (lambda p, x, a, w: p.add(SCALED, x=x, s=0.5), DTypeMismatch, "not 0.5"),
    "a NaN": (lambda p, x, a, w: p.add(SCALED, x=x, s=float("nan")), DTypeMismatch, "not nan"),
    "no kernel": (lambda p, x, a, w: p.add(np.add, x=x), PipelineError, "ufunc is not a kernel"),
    "the same step name": (
        lambda p, x, a, w: (p.add(UNARY, x=x, step_name="s"), p.add(UNARY, x=x, step_name="s")),
        PipelineError,
        "the name 's' is taken by another step",
    ),
    "writing a constant": (
        lambda p, x, a, w: p.add(UNARY, x=x, y=p.constant("c", np.ones(3, "f4"))),
        PipelineError,
        "that is a constant, which is read-only",
    ),
    "writing an input": (
        lambda p, x, a, w: p.add(UNARY, x=x, y=x),
        PipelineError,
        "that is an input, which is read-only",
    ),
    "writing a state without update": (
        lambda p, x, a, w: p.add(UNARY, x=x, y=p.state("s", "f32", ("N",))),
        PipelineError,
        "that is a state, which is read-only",
    ),
    "two writers": (
        lambda p, x, a, w: [p.add(UNARY, x=x, y=y) for y in [p.buffer("b", "f32", ("N",))] for _ in range(2)],
        PipelineError,
        "'unary.2' writes 'b' at slot 'y', but 'unary' writes it already at 'y'; a value has one writer",
    ),
    "a buffer of another type": (
        lambda p, x, a, w: p.add(UNARY, x=x, y=p.buffer("b", "f64", ("N",))),
        DTypeMismatch,
        "writes f32, but 'b' is f64",
    ),
    "a buffer of another rank": (
        lambda p, x, a, w: p.add(UNARY, x=x, y=p.buffer("b", "f32", ("N", 1))),
        ShapeMismatch,
        "rank 2",
    ),
    "operands without a common shape": (
        lambda p, x, a, w: p.add(JOIN, a=x, b=np.ones((2, 3), np.float32)),
        PipelineError,
        "says no shape",
    ),
    "an array that is no data": (lambda p, x, a, w: p.add(UNARY, x=np.ones(3, ">f4")), DTypeMismatch, "byte order"),
}


@pytest.mark.parametrize(("make", "error", "says"), EDGES.values(), ids=EDGES)
def test_an_edge_is_checked_when_it_is_made(make, error, says):
    with pytest.raises(error, match=says):
        make(*sources())


def test_a_refused_step_leaves_nothing_behind():
    pipe, _, a, _ = sources()
    before, steps = dict(pipe.values), len(pipe.steps)
    with pytest.raises(ShapeMismatch):
        pipe.add(MATMUL, a=a, b=np.ones((63, 3), np.int8))
    with pytest.raises(DTypeMismatch):
        pipe.add(SCALED, x=np.ones(3, np.float32), s=200)
    assert pipe.values == before
    assert len(pipe.steps) == steps
    assert pipe.constraints == []


def test_symbolic_sizes_are_unified_where_they_can_be_and_compared_at_bind_where_not():
    pipe = Pipeline("p")
    a = pipe.input("a", "u8", ("M", "2*P"))
    b = pipe.input("b", "s8", ("P + P", "N"))
    y = pipe.add(MATMUL, a=a, b=b)
    assert y.shape == (size("M"), size("N"))
    assert pipe.constraints == []  # 2*P and P + P are one size
    c = pipe.input("c", "s8", ("Q", 5))
    pipe.add(MATMUL, a=a, b=c)
    assert [(str(x), str(y)) for x, y, _ in pipe.constraints] in ([("2*P", "Q")], [("Q", "2*P")])
    pipe.check_sizes({"M": 1, "P": 3, "Q": 6})
    with pytest.raises(ShapeMismatch, match=r"slot 'b' of 'matmul.2', 'c', axis 0: .* 6 .* 7; they must be equal"):
        pipe.check_sizes({"M": 1, "P": 3, "Q": 7})


def test_a_kernel_may_ask_for_an_expression_of_its_sizes():
    pipe = Pipeline("p")
    top, bottom = pipe.add(SPLIT, x=pipe.input("x", "f32", ("2*M", "N")))
    assert top.shape == bottom.shape == (size("M"), size("N"))
    assert pipe.constraints == []
    top, _ = pipe.add(SPLIT, x=pipe.constant(np.ones((6, 2), np.float32)))
    assert top.shape == (3, 2)
    top, _ = pipe.add(SPLIT, x=pipe.input("z", "f32", ("K", "N")))  # only when K is known can it be seen to be even
    assert top.shape == (size("K//2"), size("N"))
    pipe.check_sizes({"K": 8})
    with pytest.raises(ShapeMismatch, match="axis 0"):
        pipe.check_sizes({"K": 7})


def test_a_kernel_s_names_do_not_mix_with_the_pipeline_s():
    kernel = Fake(
        "k",
        (
            ArgSpec("a", "f32", shape=("N",)),
            ArgSpec("b", "f32", shape=("M + N",)),
            ArgSpec("y", "f32", "write", shape=("M",)),
        ),
    )
    pipe = Pipeline("p")
    y = pipe.add(kernel, a=pipe.input("a", "f32", ("M",)), b=pipe.input("b", "f32", ("P",)))
    assert y.shape == (size("P - M"),)


def test_a_cycle_is_named():
    pipe = Pipeline("p")
    x, back = pipe.input("x", "f32", ("N",)), pipe.buffer("back", "f32", ("N",))
    y = pipe.add(JOIN, a=x, b=back)
    with pytest.raises(
        PipelineError, match=r"step 'unary' closes a cycle: join.y <- back <- unary <- join.y|closes a cycle"
    ):
        pipe.add(UNARY, x=y, y=back)
    with pytest.raises(PipelineError, match="closes a cycle"):
        pipe.add(JOIN, a=x, b=back, y=back)


def test_steps_that_wait_for_each_other_through_a_state_are_named():
    pipe = Pipeline("p")
    x, b, s = pipe.input("x", "f32", ("N",)), pipe.buffer("b", "f32", ("N",)), pipe.state("s", "f32", ("N",))
    pipe.add(UPDATE, x=b, s=s)
    pipe.add(Fake("late", (ArgSpec("x", "f32"), ArgSpec("s", "f32"), ArgSpec("y", "f32", "write"))), x=x, s=s, y=b)
    pipe.output("y", b)
    with pytest.raises(PipelineError, match="update, late wait for each other"):
        pipe.order()


def test_outputs_and_updates_are_checked():
    pipe, x, a, _ = sources()
    y = pipe.add(UNARY, x=x)
    s = pipe.state("s", "f32", ("N",))
    pipe.output("y", y)
    for make, error, says in (
        (lambda: pipe.output("y", y), PipelineError, "the name 'y' is taken: it is the output"),
        (lambda: pipe.output("", y), PipelineError, "an output needs a name"),
        (lambda: pipe.output("z", np.ones(3)), PipelineError, "it must be a value of pipeline 'p'"),
        (lambda: pipe.output("z", chain(1).outputs["y"]), PipelineError, "it must be a value of pipeline 'p'"),
        (lambda: pipe.output("z", pipe.argument("f", "function")), PipelineError, "only data can be an output"),
        (lambda: pipe.update(x, y), PipelineError, "is not a state of 'p'; declare it with pipe.state"),
        (lambda: pipe.update(s, a), DTypeMismatch, "state 's' is f32, but 'a' is u8"),
        (lambda: pipe.update(s, np.ones(3)), PipelineError, "a value of 'p' is needed"),
        (lambda: pipe.update(s, chain(1).outputs["y"]), PipelineError, "a value of 'p' is needed"),
    ):
        with pytest.raises(error, match=says):
            make()
    pipe.update(s, y)
    with pytest.raises(PipelineError, match=r"is updated already, by 'unary\.y'"):
        pipe.update(s, x)
    with pytest.raises(PipelineError, match="one writer"):
        pipe.add(UPDATE, x=x, s=s)


def test_a_finished_pipeline_has_an_output_and_every_value_a_writer():
    pipe = Pipeline("p")
    x = pipe.input("x", "f32", ("N",))
    pipe.add(UNARY, x=x)
    with pytest.raises(PipelineError, match=r"'p' has no output; name one with pipe.output"):
        pipe.validate()
    b = pipe.buffer("b", "f32", ("N",))
    pipe.output("y", b)
    with pytest.raises(PipelineError, match="output 'y' reads 'b', which no step writes"):
        pipe.validate()
    pipe.add(UNARY, x=x, y=b)
    pipe.validate()


def test_a_value_is_no_array():
    with pytest.raises(PipelineError, match="'x' is a pipeline value, which has no data yet"):
        np.asarray(Pipeline().input("x", "f32", (3,)))


# Order ------------------------------------------------------------------------------------------------------------


def test_the_order_is_topological_and_otherwise_as_added():
    pipe = Pipeline("p")
    x, late = pipe.input("x", "f32", ("N",)), pipe.buffer("late", "f32", ("N",))
    pipe.add(UNARY, x=late, step_name="reads_late")
    pipe.add(UNARY, x=x, step_name="b")
    pipe.add(UNARY, x=x, step_name="a")
    pipe.add(UNARY, x=x, y=late, step_name="writes_late")
    pipe.add(UNARY, x=x, step_name="c")
    names = ["b", "a", "writes_late", "reads_late", "c"]
    assert [step.name for step in pipe.order()] == names
    assert [k.name for k in pipe.kernels] == ["unary"] * 5
    assert [step.name for step in pipe.order()] == names  # and again


def test_readers_and_writers_of_a_state_keep_the_order_of_their_adding():
    reads = Fake("reads", (ArgSpec("s", "f32", shape=("N",)), ArgSpec("y", "f32", "write", shape=("N",))))
    pipe = Pipeline("p")
    s = pipe.state("s", "f32", (4,))
    before = pipe.add(reads, s=s)
    pipe.add(UPDATE, x=before, s=s)
    after = pipe.add(reads, s=s)
    pipe.add(UPDATE, x=after, s=s)
    assert [step.name for step in pipe.order()] == ["reads", "update", "reads.2", "update.2"]


def test_a_long_pipeline_is_built_and_ordered_in_time_that_grows_with_its_length():
    pipe = chain(3000)
    assert [step.name for step in pipe.order()][-1] == "unary.3000"


def test_edges_run_from_slot_to_slot():
    pipe, _, a, w = sources()
    y = pipe.add(MATMUL, a=a, b=w)
    pipe.output("acc", y)
    assert pipe.edges == [
        Edge("", "a", "matmul", "a"),
        Edge("", "w", "matmul", "b"),
        Edge("matmul", "y", "", "acc"),
    ]
    assert str(pipe.edges[0]) == "pipeline.a -> matmul.a"
    assert str(pipe.edges[2]) == "matmul.y -> pipeline.acc"


# Composition ------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_a_part_of_another_as_often_as_one_likes():
    inner = chain(2)
    outer = Pipeline("outer")
    x = outer.input("x", "f32", ("P",))
    first = outer.call(inner, x=x)
    second = outer.call(inner, x=first)
    third = outer.call(inner, prefix="last", x=second)
    outer.output("y", third)
    assert third.shape == (size("P"),)
    assert [s.name for s in outer.order()] == [
        *("chain_0.unary", "chain_0.unary.2", "chain_1.unary", "chain_1.unary.2", "last.unary", "last.unary.2")
    ]
    outer.validate()


def test_a_part_brings_its_constants_states_and_size_checks():
    inner = Pipeline("inner")
    a, b = inner.input("a", "u8", ("M", "K")), inner.input("b", "s8", ("Q", "N"))
    acc = inner.add(MATMUL, a=a, b=b)
    s = inner.state("s", "s32", ("M", "N"), 3)
    inner.update(s, acc)
    inner.output("acc", acc)
    inner.output("old", s)
    outer = Pipeline("outer")
    results = outer.call(inner, a=outer.input("p", "u8", ("X", "Y")), b=np.ones((5, 7), np.int8))
    assert set(results) == {"acc", "old"}
    assert results["acc"].shape == (size("X"), 7)
    assert outer.values["inner_0.s"].shape == (size("X"), 7)
    assert outer.updates["inner_0.s"] is results["acc"]
    with pytest.raises(ShapeMismatch):
        outer.check_sizes({"X": 2, "Y": 6})
    outer.check_sizes({"X": 2, "Y": 5})


def test_numbers_and_expressions_are_bound_when_a_pipeline_is_called():
    inner = Pipeline("inner")
    x, s = inner.input("x", "f32", ("2*M",)), inner.argument("s", "s8")
    top = inner.add(SCALED, x=x, s=s)
    inner.output("y", top)
    half = inner.state("half", "f32", ("M",))
    inner.output("half", half)
    outer = Pipeline("outer")
    found = outer.call(inner, x=np.ones(10, np.float32), s=3)
    assert found["y"].shape == (10,)
    assert found["half"].shape == (5,)
    assert outer.call(inner, x=outer.input("x", "f32", ("P",)), s=3)["half"].shape == (size("P//2"),)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda o, i: o.call(i), PipelineError, "lacks its input 'x'"),
        (lambda o, i: o.call(i, z=1), PipelineError, "has no input 'z'; it has x"),
        (lambda o, i: o.call(i, x=np.ones(3)), DTypeMismatch, "is f32, but .* is f64"),
        (lambda o, i: o.call(i, x=np.ones((3, 3), np.float32)), ShapeMismatch, "rank 2"),
        (lambda o, i: o.call(i, x=i.outputs["y"]), PipelineError, "of another pipeline"),
        (lambda o, i: o.call(o, x=1), PipelineError, "cannot be a part of itself"),
        (lambda o, i: o.call(Pipeline("empty")), PipelineError, "has no output"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_and_leaves_nothing(call, error, says):
    outer, inner = Pipeline("outer"), chain(2)
    outer.output("x", outer.input("x", "f32", (3,)))
    before = dict(outer.values), list(outer.steps)
    with pytest.raises(error, match=says):
        call(outer, inner)
    assert (outer.values, outer.steps) == before


# Printing ---------------------------------------------------------------------------------------------------------


def sample():
    pipe, _, a, w = sources()
    acc = pipe.add(MATMUL, a=a, b=w, step_name='<gemm> & "co"')
    s = pipe.state("s", "s32", ("M", 3))
    pipe.update(s, acc)
    pipe.output("acc", acc)
    return pipe


def test_a_pipeline_prints_its_values_steps_and_outputs():
    assert repr(sample()).splitlines() == [
        "Pipeline 'p': 1 steps",
        "  input     x: f32 (N,)",
        "  input     a: u8 (M, 64)",
        "  constant  w: s8 (64, 3)",
        "  state     s: s32 (M, 3)",
        '  step      <gemm> & "co".y: s32 (M, 3) = <gemm> & "co"(a=a, b=w)',
        '  update    s <- <gemm> & "co".y',
        '  output    acc = <gemm> & "co".y',
    ]


def test_mermaid_text_names_every_node_and_escapes_labels():
    lines = sample().mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    assert '  s0[["&lt;gemm&gt; &amp; &quot;co&quot;"]]' in lines
    assert '  v2["w"]' in lines
    assert any(line.endswith("| s0") and line.startswith("  v1 -->") and "a: u8 (M, 64)" in line for line in lines)
    nodes = {line.split("[")[0].split("(")[0].strip() for line in lines[1:] if "-" not in line}
    used = {
        part.strip() for line in lines if "--" in line or "-." in line for part in (line.split()[0], line.split()[-1])
    }
    assert used <= nodes
    assert "None" not in sample().mermaid()


def test_html_escapes_names():
    html = sample()._repr_html_()
    assert "&lt;gemm&gt; &amp;" in html
    assert "<gemm>" not in html
    assert html.count("<tr>") == 2


def test_a_pipeline_that_is_not_finished_prints_too():
    pipe = Pipeline("p")
    pipe.output("y", pipe.buffer("b", "f32", (3,)))
    assert "buffer    b: f32 (3,)" in repr(pipe)
    assert "None" not in pipe.mermaid()
    assert "p" in pipe._repr_html_()


def test_quantization_is_checked_against_the_shape():
    with pytest.raises((QuantizationError, ShapeMismatch)):
        Pipeline().input("x", "u8", (4, 3), quant=QuantParams(np.ones(5, np.float32), axis=0))


def test_the_first_value_of_a_state_cannot_be_written():
    pipe = Pipeline("kept")
    given = np.ones(3, np.float32)
    kept = pipe.state("s", "f32", (3,), given)
    assert not kept.data.flags.writeable
    given[0] = 7
    assert kept.data.tolist() == [1, 1, 1]


def test_a_size_may_be_zero_and_not_less():
    assert Pipeline("none").input("x", "u8", (0, 4)).shape == (0, 4)
    with pytest.raises(ShapeMismatch, match="sizes are 0 or more"):
        Pipeline("less").input("x", "u8", (-1, 4))


def test_a_wide_web_of_steps_is_searched_for_cycles_once():
    """Each step reads the one before twice: there are 2**60 ways from the last to the first."""
    pipe = Pipeline("web")
    both = Fake("both", (*(ArgSpec(slot, "f32", shape=("N",)) for slot in "ab"), ArgSpec("y", "f32", "write")))
    value = pipe.input("x", "f32", (4,))
    for n in range(60):
        value = pipe.add(both, a=value, b=value, y=pipe.buffer(f"b{n}", "f32", (4,)))
    assert len(pipe.steps) == 60


def test_a_packed_state_starts_as_bytes_or_as_a_number():
    pipe = Pipeline("packed")
    assert pipe.state("a", "u4", (2, 3, 5), np.zeros((2, 3, 3), np.uint8)).shape == (2, 3, 5)
    assert pipe.state("b", "u4", (2, 3, 5), np.zeros((1, 3), np.uint8)).shape == (2, 3, 5)
    assert pipe.state("c", "u4", ("N", 3, 6), np.zeros((7, 3, 3), np.uint8)).shape == ("N", 3, 6)
    for shape in ((2, 3, 5), (2, 3, 2), (3, 3, 3), (1, 2, 3, 3)):
        with pytest.raises(ShapeMismatch, match="does not broadcast to"):
            pipe.state("d", "u4", (2, 3, 5), np.zeros(shape, np.uint8))


def test_mermaid_draws_states_and_what_becomes_of_them():
    pipe = Pipeline("states")
    x = pipe.input("x", "f32", (4,))
    kept, total = pipe.state("kept", "f32", (4,)), pipe.state("total", "f32", (4,))
    grow = Fake("grow", (ArgSpec("x", "f32", shape=("N",)), ArgSpec("s", "f32", "update", shape=("N",))))
    pipe.add(grow, x=x, s=kept)
    y = pipe.add(UNARY, x=total)
    pipe.update(total, y)
    pipe.output("y", y)
    lines = pipe.mermaid().splitlines()
    ids = {
        name: next(line for line in lines if f'"{name}' in line).split("[")[0].split("(")[0].strip()
        for name in ("kept", "total")
    }
    assert any(line.strip().startswith("s0 -.->|") and line.endswith(f"| {ids['kept']}") for line in lines)
    assert any("update" in line and line.endswith(f"| {ids['total']}") for line in lines)


def test_a_slot_may_ask_for_the_type_of_another():
    same = Fake(
        "same", (ArgSpec("a", None, shape=("N",)), ArgSpec("b", "=a", shape=("N",)), ArgSpec("y", "f32", "write"))
    )
    pipe = Pipeline()
    a, b = pipe.input("a", "u8", (4,)), pipe.input("b", "s8", (4,))
    y = pipe.buffer("y", "f32", (4,))
    with pytest.raises(DTypeMismatch):
        pipe.add(same, a=a, b=b, y=y)
    pipe.add(same, a=a, b=a, y=y)
