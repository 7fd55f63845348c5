"""Pipelines on CUDA without a device: the graph as data, and the same graph executed on the interpreter."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tilework as tw
from tilework.bench import demo
from tilework.executors.cuda import drawing
from tilework.executors.cuda.graph import Place, orders
from tilework.primitives.errors import ArgumentError, QuantizationError, Unsupported
from tilework.primitives.kernel import ArgSpec

ROOT = Path(__file__).parents[2]


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def branching(k=64, n=48):
    """x quantized, multiplied twice side by side, one product on through a user's function."""
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("branching")
    x = pipe.input("x", "f32", ("M", k))
    q = tw.ops.quantize(x, scale=pipe.argument("s", "f32"), zero_point=128, dtype="u8")
    weights = [rng.integers(-128, 128, (k, n)).astype(np.int8) for _ in range(2)]
    one, two = (tw.ops.gemm(q, pipe.constant(f"w{n}", w), a_zero_point=128) for n, w in enumerate(weights))
    h = tw.ops.requantize(one, multiplier=np.float32(0.0005), zero_point=3, dtype="u8")
    pipe.output("y", tw.ops.map(leaky, two, scale=np.float32(0.01), dtype="f32"))
    pipe.output("k", tw.ops.argmax(h))
    return pipe


def inputs(m, seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((m, 64)).astype(np.float32), "s": np.float32(0.02)}


def same(found, right):
    assert found.keys() == right.keys()
    for name, array in right.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_any_order_that_the_graph_allows_gives_the_cpus_bytes(seed, fuse):
    pipe = branching()
    plan = tw.CudaExecutor("interpreter", fuse=fuse, seed=seed).compile(pipe)
    for m in (1, 37, 0):
        same(plan.run(inputs(m, m)), tw.SingleThreadExecutor("reference").run(pipe, inputs(m, m)))


def test_the_graph_is_data():
    plan = tw.CudaExecutor("interpreter").compile(branching())
    graph = plan.graph({"x": (37, 64), "s": ()})
    names = [node.name for node in graph]
    assert [node.name for node in graph if node.once] == [n for n in names if n.endswith("pack_b")]
    products = [node for node in graph if node.name.endswith("gemm_mma")]
    assert len(products) == 2
    quantized = names.index("quantize_f32u8")
    for node in products:
        assert node.launch.grid == (1, 1, 1)
        assert node.launch.block == (128, 1, 1)
        assert quantized in node.after
        assert len(node.args) == len(node.launch.parameters)
        assert all(graph.buffers[a.buffer].nbytes > a.offset for a in node.args if isinstance(a, Place))
    first, second = (names.index(node.name) for node in products)
    assert first not in graph.nodes[second].after, "independent products wait for one another"
    assert graph.branches() >= 3
    assert [b.kind for b in graph.buffers if b.name == "x"] == ["input"]


def test_every_order_is_one_that_the_dependencies_allow():
    graph = tw.CudaExecutor("interpreter").compile(branching()).graph({"x": (5, 64), "s": ()})
    seen = set()
    for seed in range(10):
        order = orders(graph.nodes, seed)
        seen.add(tuple(order))
        assert all(order.index(n) < order.index(k) for k, node in enumerate(graph) for n in node.after)
    assert len(seen) > 1


def test_other_sizes_have_other_grids_and_the_same_kernels():
    plan = tw.CudaExecutor("interpreter").compile(branching(n=200))
    small, large = (plan.graph({"x": (m, 64), "s": ()}) for m in (65, 1000))
    pairs = [(a.launch, b.launch) for a, b in zip(small, large, strict=True) if a.name.endswith("gemm_mma")]
    assert all(a.kernel is b.kernel for a, b in pairs)
    assert [(a.grid, b.grid) for a, b in pairs] == [((2, 1, 1), (2, 8, 1))] * 2


def test_explain_shows_nodes_grids_arguments_and_dependencies():
    plan = tw.CudaExecutor("interpreter").compile(branching(), {"x": (37, 64), "s": ()})
    text = plan.explain()
    for part in ("at M = 37", "gemm_mma", "once", "grid 1 x 1 x 1, block 128, after 0, 1", "packed"):
        assert part in text


def test_the_graph_is_drawn_with_what_waits_for_what():
    pipe = branching()
    x = pipe.add(PlusOne(), x=tw.ops.quantize(pipe.values["x"], scale=np.float32(0.1), zero_point=0, dtype="u8"))
    pipe.output("p", x)
    plan = tw.CudaExecutor("interpreter").compile(pipe, {"x": (37, 64), "s": ()})
    graph = plan.graph({"x": (37, 64), "s": ()})
    lines = plan.mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    for node in graph:
        (line,) = [
            text
            for text in lines
            if text.startswith((f"  n{node.number}[", f"  n{node.number}(", f"  n{node.number}{{"))
        ]
        assert node.name in line
        assert ("{{" in line) == node.on_host
        assert ("once" in line) == node.once
        assert [f"  n{n} --> n{node.number}" in lines for n in node.after] == [True] * len(node.after)
    assert sum("-->" in line for line in lines) == sum(len(node.after) for node in graph)
    picture = ElementTree.fromstring(plan.svg())
    name = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{name}rect")) == len(graph.nodes)
    assert len(picture.findall(f"{name}path")) == sum(len(node.after) for node in graph)
    fills = [box.get("fill") for box in picture.findall(f"{name}rect")]
    assert fills.count(drawing.HOST) == 1
    assert fills.count(drawing.ONCE) == 2


def test_a_graph_is_drawn_at_sizes():
    plan = tw.CudaExecutor("interpreter").compile(branching())
    with pytest.raises(ArgumentError, match="M are known only at run time"):
        plan.mermaid()
    assert plan.mermaid({"x": (3, 64), "s": ()}) == plan.mermaid()
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.neg(pipe.input("x", "f32", (8,))))
    assert "grid 1 x 1 x 1" in tw.CudaExecutor("interpreter").compile(pipe).svg()


@dataclass(frozen=True)
class PlusOne:
    """A step that is nothing but Python."""

    name = "plus_one"

    def signature(self):
        return (ArgSpec("x", "u8", shape=("M", "N")), ArgSpec("y", "u8", "write", shape=("M", "N")))

    def execute(self, ctx):
        ctx.write("y")[...] = ctx.read("x") + np.uint8(1)


def test_a_step_without_a_cuda_kernel_runs_on_the_host_and_explain_names_it():
    pipe = tw.Pipeline()
    x = pipe.input("x", "f32", ("M", 64))
    q = tw.ops.quantize(x, scale=np.float32(0.02), zero_point=0, dtype="u8")
    more = pipe.add(PlusOne(), x=q)
    pipe.output("y", tw.ops.dequantize(more, scale=np.float32(0.5), zero_point=1))
    plan = tw.CudaExecutor("interpreter").compile(pipe)
    given = {"x": inputs(9)["x"]}
    same(plan.run(given), tw.SingleThreadExecutor().run(pipe, given))
    assert "on the host, for want of a CUDA kernel: plus_one" in plan.explain()


def test_a_parameter_that_is_wrong_at_run_time_names_the_step():
    plan = tw.CudaExecutor("interpreter").compile(branching())
    with pytest.raises(QuantizationError, match="step 'quantize_f32u8': a scale given at run time"):
        plan.run({**inputs(3), "s": np.float32(0)})
    same(plan.run(inputs(3)), tw.SingleThreadExecutor().run(branching(), inputs(3)))


def test_states_live_from_run_to_run():
    pipe = tw.Pipeline()
    total = pipe.state("total", "f32", (4,))
    new = tw.ops.add(total, pipe.input("x", "f32", (4,)))
    pipe.update(total, new)
    pipe.output("y", new)
    plan = tw.CudaExecutor("interpreter").compile(pipe)
    for n in range(1, 4):
        assert plan.run({"x": np.ones(4, np.float32)})["y"].tolist() == [n] * 4


def test_values_may_have_the_names_of_a_graphs_own_buffers():
    pipe = tw.Pipeline()
    names = ("arena", "temporaries", "packed", "status")
    for name in names:
        pipe.output(f"y_{name}", tw.ops.neg(tw.ops.relu(pipe.input(name, "f32", (8,)))))
    given = {name: np.linspace(-1, n + 1, 8, dtype=np.float32) for n, name in enumerate(names)}
    same(tw.CudaExecutor("interpreter", fuse=False).run(pipe, given), tw.SingleThreadExecutor().run(pipe, given))


def test_a_bound_call_reads_what_its_arrays_hold_then():
    pipe = branching()
    given, y = inputs(4), np.zeros((4, 48), np.float32)
    call = tw.CudaExecutor("interpreter").compile(pipe).bind(given, {"y": y})
    call()
    given["x"][...] = inputs(4, seed=9)["x"]
    call()
    assert y.tobytes() == tw.SingleThreadExecutor().run(pipe, given)["y"].tobytes()


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu"])
def test_another_device_is_refused_by_name(device):
    with pytest.raises(ArgumentError, match="'cuda:0', another number, or 'interpreter'"):
        tw.CudaExecutor(device)


def test_a_device_without_its_libraries_says_which_extra_brings_them(monkeypatch):
    from tilework.kernels.cuda import seam

    def absent():
        raise Unsupported(f"numba-cuda is not installed; {seam.EXTRA}")

    monkeypatch.setattr(seam, "compiler", absent)
    with pytest.raises(Unsupported, match=r"pip install 'tilework\[cuda13\]'"):
        tw.CudaExecutor("cuda:0")


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_demos_network_classifies_the_same(per_channel):
    digits = demo.Digits.load()
    pipe, _ = demo.int8_network(digits, per_channel)
    images = {next(iter(pipe.of_kind("input"))): digits.images[digits.test[:40]]}
    same(tw.CudaExecutor("interpreter").run(pipe, images), tw.SingleThreadExecutor().run(pipe, images))


@pytest.mark.parametrize(("scheme", "compute"), [("int4_g32", "int8"), ("int4_g32", "f32"), ("nf4", "f32")])
def test_weights_of_a_scheme_give_the_same_bytes(scheme, compute):
    rng = np.random.default_rng(0)
    q = tw.schemes.get(scheme).quantize(rng.standard_normal((24, 64)).astype(np.float32))
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.linear(pipe.input("x", "f32", ("M", 64)), q, compute=compute))
    x = {"x": rng.standard_normal((5, 64)).astype(np.float32)}
    plan = tw.CudaExecutor("interpreter").compile(pipe)
    same(plan.run(x), tw.SingleThreadExecutor().run(pipe, x))
    assert "on the host" not in plan.explain()


def random_pipelines():
    spec = importlib.util.spec_from_file_location(
        "random_pipelines", ROOT / "tests" / "executors" / "random_pipelines.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_pipelines_give_the_same_bytes():
    made = random_pipelines()
    for seed in range(8):
        case = made.make(seed, depth=10)
        expected = made.results(tw.SingleThreadExecutor("reference").compile(case.pipe), case)
        found = made.results(tw.CudaExecutor("interpreter", seed=seed if seed % 2 else None).compile(case.pipe), case)
        assert made.differences(expected, found) == [], f"seed {seed}"
