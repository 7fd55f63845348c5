"""The pipelines of examples/ on CUDA's interpreter: the bytes of the CPU, and which steps the host keeps."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import tilework as tw

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch, capsys):
    """example(name): the names of an example, which does not run as a program."""

    def load(name):
        monkeypatch.setattr(sys, "argv", [name])
        return runpy.run_path(str(EXAMPLES / name), run_name="example")

    return load


def check(pipe, given, seed=None):
    """The names of the steps that ran on the host, after comparing all bytes."""
    plan = tw.CudaExecutor("interpreter", seed=seed).compile(pipe)
    found, right = plan.run(given), tw.SingleThreadExecutor("reference").run(pipe, given)
    for name, array in right.items():
        assert (found[name].dtype, found[name].tobytes()) == (array.dtype, array.tobytes()), name
    shapes = {name: np.shape(array) for name, array in given.items()}
    return {node.kernel.name for node in plan.graph(shapes) if node.on_host}


def test_a_product_with_a_step_between(example):
    made = example("int8_gemm_pipeline.py")
    for between in (None, made["leaky"]):
        assert check(made["build"](between), {"a": made["a"]}, seed=3) == set()


def test_a_search_by_quantized_codes(example):
    made = example("vector_search.py")
    database, queries = made["data"](np.random.default_rng(0), 60, 3, 64)
    product, _ = made["by_product"](tw.schemes.get("int4_g32"), database, 4)
    assert check(product, {"queries": queries}) <= {"topk"}
    signs, _ = made["by_signs"](database, 4)
    assert check(signs, {"queries": queries}) <= {"scheme_encode", "hamming", "topk"}


@pytest.mark.slow
def test_rows_of_a_table(example):
    made = example("etl.py")
    given = made["sales"](np.random.default_rng(0), 200, 20)
    hosted = check(made["job"](20), {name: given[name] for name in made["job"](20).of_kind("input")})
    assert hosted <= {"group_result", "row_count", "group_aggregate", "key_find"}


def test_a_picture_but_for_its_rasteriser(example):
    """The two steps that the example writes for the CPU are left out: the host would compile and run them."""
    made = example("render.py")
    pipe = tw.Pipeline("render")
    corners, normals, _ = made["geometry"](pipe, 6, 4)
    sx, sy, depth, normal = made["transform"](pipe, corners, normals, 9, 12)
    for name, value in {"sx": sx, "sy": sy, "depth": depth, **{f"n{n}": v for n, v in enumerate(normal)}}.items():
        pipe.output(name, value)
    pipe.output("tones", made["tone_map"](pipe, pipe.input("x", "f32", (9, 12, 3))))
    x = np.random.default_rng(0).random((9, 12, 3), dtype=np.float32)
    assert check(pipe, {**made["camera"](9, 12, turn=0.5, tilt=1.0), "x": x}) == set()
