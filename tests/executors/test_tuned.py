"""Plans take tuned tiles where one fits; what they give is the same with and without."""

import json
import logging

import numpy as np
import pytest

from tilework import Pipeline, SingleThreadExecutor, TilingExecutor, ops
from tilework.executors.tuned import machine_of
from tilework.kernels import tuning

K, N = 96, 80


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """An empty store in the folder of an empty cache of tiles; compiled kernels stay where they are."""
    monkeypatch.setattr(tuning, "path", lambda machine: tmp_path / f"{machine}.jsonl")
    monkeypatch.setattr(tuning, "_said", set())
    monkeypatch.delenv("TILEWORK_TUNED", raising=False)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (40, K), dtype=np.uint8), rng.integers(-128, 128, (K, N), dtype=np.int8)


def layer(b, fused=False):
    pipe = Pipeline("layer")
    y = ops.gemm(pipe.input("a", "u8", ("M", K)), pipe.constant("b", b), a_zero_point=7)
    if fused:
        y = ops.requantize(y, multiplier=np.float32(1e-3), zero_point=3, dtype="u8")
    pipe.output("y", y)
    return pipe


def save(tile, pipe, M, threads=1, **more):
    """What a sweep that is asked to save would append."""
    plan = TilingExecutor(threads, tuned=False).compile(pipe, {"a": (M, K)})
    key = plan.tiles.tunable["gemm_u8s8s32"].key
    tuning.append(machine_of("cpu", None), {"kind": "tuned", **key.facts(), "tile": tile, **more})


@pytest.mark.parametrize("fused", [False, True])
def test_a_plan_takes_the_tuned_tile_and_gives_the_same(data, fused):
    a, b = data
    pipe = layer(b, fused)
    expected = SingleThreadExecutor("reference").run(pipe, {"a": a})["y"]
    save({"mr": 4, "nr": 32, "mc": 12}, pipe, len(a))
    plan = TilingExecutor(1).compile(pipe, {"a": a.shape})
    assert "mr x nr 4 x 32, mc 12" in plan.explain()
    assert "tile tuned at M32 K96 N64: mr 4, nr 32, mc 12" in plan.explain()
    np.testing.assert_array_equal(plan.run({"a": a})["y"], expected, strict=True)
    untuned = TilingExecutor(1, tuned=False).compile(pipe, {"a": a.shape})
    assert "tuned" not in untuned.explain()
    np.testing.assert_array_equal(untuned.run({"a": a})["y"], expected, strict=True)


def test_a_tile_asked_for_comes_first(data):
    a, b = data
    save({"mr": 4, "nr": 32}, layer(b), len(a))
    plan = TilingExecutor(1, tile={"gemm_u8s8s32": {"mr": 6, "nr": 16}}).compile(layer(b), {"a": a.shape})
    assert "mr x nr 6 x 16" in plan.explain()


def test_another_bucket_epilogue_or_number_of_threads_does_not_fit(data):
    a, b = data
    save({"mr": 4, "nr": 32}, layer(b), len(a))
    for executor, pipe, rows in (
        (TilingExecutor(1), layer(b), 200),
        (TilingExecutor(1), layer(b, fused=True), 40),
        (TilingExecutor(2), layer(b), 40),
        (TilingExecutor(1, isa="generic"), layer(b), 40),
    ):
        assert "tuned" not in executor.compile(pipe, {"a": (rows, K)}).explain()


def test_without_shapes_a_tile_is_taken_only_if_it_fits_every_size(data):
    _, b = data
    save({"mr": 4, "nr": 32}, layer(b), 40)
    assert "tuned" in TilingExecutor(1).compile(layer(b)).explain()
    save({"mr": 2, "nr": 16}, layer(b), 4)
    assert "tuned" not in TilingExecutor(1).compile(layer(b)).explain()
    assert "mr 2" in TilingExecutor(1).compile(layer(b), {"a": (4, K)}).explain()


@pytest.mark.parametrize("tile", [{"mr": 30, "nr": 64}, {"mr": 4, "nr": 7}, {"speed": 9}, {"mr": 0}])
def test_a_tile_that_cannot_be_is_ignored_with_a_reason(data, tile, caplog):
    a, b = data
    save(tile, layer(b), len(a))
    with caplog.at_level(logging.WARNING, "tilework"):
        plan = TilingExecutor(1).compile(layer(b), {"a": a.shape})
    assert "tuned tile of gemm_u8s8s32 is not used" in caplog.text
    assert "tuned" not in plan.explain()
    np.testing.assert_array_equal(
        plan.run({"a": a})["y"], SingleThreadExecutor("reference").run(layer(b), {"a": a})["y"], strict=True
    )


def test_a_stale_tile_is_ignored(data, caplog):
    a, b = data
    save({"mr": 4, "nr": 32}, layer(b), len(a), source="0000")
    with caplog.at_level(logging.WARNING, "tilework"):
        assert "tuned at" not in TilingExecutor(1).compile(layer(b), {"a": a.shape}).explain()
    assert "source: expected" in caplog.text
    assert "the line has 0000" in caplog.text


def test_any_line_gives_the_same_bytes(data):
    """Whatever a store holds, a plan gives what it gives without it."""
    a, b = data
    expected = SingleThreadExecutor("reference").run(layer(b), {"a": a})["y"]
    rng = np.random.default_rng(1)
    for _ in range(6):
        tile = {
            "mr": int(rng.integers(1, 9)),
            "nr": 16,
            "mc": int(rng.integers(1, 50)),
            "kc": int(rng.integers(1, 200)),
        }
        save(tile, layer(b), len(a))
        y = TilingExecutor(1).compile(layer(b), {"a": a.shape}).run({"a": a})["y"]
        np.testing.assert_array_equal(y, expected, strict=True, err_msg=json.dumps(tile))
