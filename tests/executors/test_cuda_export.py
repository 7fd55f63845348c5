"""A CUDA plan as files: what is listed is enough to run it, and gives the plan's bytes."""

import json

import numpy as np
import pytest

import tilework as tw
from tilework.bench import demo
from tilework.executors.cuda import export as exporting
from tilework.primitives.errors import Unsupported


def plan_of_the_demo():
    pipe, _ = demo.int8_network(demo.Digits.load(), per_channel=True)
    return tw.CudaExecutor("interpreter").compile(pipe)


def stub(kernel, parameters, cc, threads=0):
    return f".target sm_{cc[0]}{cc[1]}\n.visible .entry {kernel.__name__}_entry(.param .u64 x)\n"


def test_the_list_says_what_the_graph_does(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting.compile, "to_ptx", stub)
    plan = plan_of_the_demo()
    path = plan.export(tmp_path, {"x": (3, 64)}, name="digits", cc=(9, 0))
    facts = json.loads(path.read_text())
    graph = plan.graph({"x": (3, 64)})
    assert len(facts["nodes"]) == len(graph.nodes)
    content = (tmp_path / "digits.bin").read_bytes()
    for buffer, listed in zip(graph.buffers, facts["buffers"], strict=True):
        assert (listed["name"], listed["kind"], listed["bytes"]) == (buffer.name, buffer.kind, buffer.nbytes)
        if buffer.data is not None:
            assert listed["at"] % facts["align"] == 0
            assert content[listed["at"] : listed["at"] + listed["bytes"]] == buffer.data.tobytes()
    for node, listed in zip(graph, facts["nodes"], strict=True):
        assert (tuple(listed["grid"]), tuple(listed["block"])) == (node.launch.grid, node.launch.block)
        assert len(listed["arguments"]) == len(listed["parameters"]) == len(node.args)
        assert (tmp_path / listed["file"]).read_text().startswith(".target sm_90")
        assert listed["entry"] == f"{node.launch.name}_entry"
        assert all(n < facts["nodes"].index(listed) for n in listed["after"])
    assert facts["outputs"] == {"logits": plan.pipe.outputs["logits"].name}


def test_a_step_without_a_cuda_kernel_is_named(tmp_path):
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.resize(pipe.input("x", "f32", (3, 8)), 1, 16, mode="linear"))
    with pytest.raises(Unsupported, match=r"resize\S*: no kernel 'resize' on backend 'cuda'"):
        tw.CudaExecutor("interpreter").compile(pipe).export(tmp_path)


def test_the_files_are_ptx(tmp_path, absent):
    from tilework.kernels.cuda import seam

    try:
        seam.compiler()
    except Unsupported as error:
        absent(str(error), "TILEWORK_REQUIRE_PTX")
    pipe = tw.Pipeline("relu")
    x = pipe.input("x", "f32", (64,))
    pipe.output("y", tw.ops.relu(x))
    facts = json.loads(tw.CudaExecutor("interpreter").compile(pipe).export(tmp_path).read_text())
    (node,) = facts["nodes"]
    text = (tmp_path / node["file"]).read_text()
    assert f".visible .entry {node['entry']}(" in text
    assert ".target sm_80" in text
    np.testing.assert_array_equal(node["block"][1:], [1, 1])
