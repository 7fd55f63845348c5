"""Sweeps: checked before timed, kept as they go, resumed, saved; for kernels, pipelines and whatever a user registers."""

import json
import logging

import numpy as np
import pytest
from numba import njit

from tilework import ArgSpec, Axis, IndexSpace, Pipeline, TilingExecutor, bench, factory, ops
from tilework.bench.tiles import problem
from tilework.bench.tiles.result import Result
from tilework.bench.tiles.sweep import Options, Sweeper, Watch
from tilework.executors.tuned import machine_of
from tilework.kernels import tuning
from tilework.kernels.tileparams import TileParam
from tilework.primitives.errors import ArgumentError, FileFormatError

SHAPE = "24x64x96"
TILES = {"mr": (2, 4), "nr": (8, 16), "mc": (8, 24)}

pytestmark = pytest.mark.usefixtures("store")


def sweep(device, tiles=None, **options):
    made = problem.make("gemm_u8s8s32", SHAPE)
    device.isa = "avx2"
    return Sweeper(made, made.step, device, Options(tiles=tiles or TILES, search="full", cold="hot", **options)).run()


def seconds(tile):
    """4 x 8 is the fastest, the own choice the slowest."""
    return 1e-3 * (2 - 0.1 * tile.get("mr", 0) - 0.04 * (16 - tile.get("nr", 16)) - 0.001 * tile.get("mc", 0))


def test_the_fastest_tile_is_chosen(timed):
    found = sweep(timed(seconds))
    assert found.best == {"mr": 4, "nr": 8, "mc": 24}
    assert found.timed[0].tile == found.best
    assert found.count("ok") == 9
    assert found.checked == "exact arithmetic"
    assert found.finalists[0].tile == found.best
    assert {"rank_of_best", "first_regret", "kept_regret"} <= found.model.keys()


def test_noise_does_not_make_a_winner(timed):
    """Where all tiles are equally fast the own choice stays."""
    for seed in range(5):
        assert sweep(timed(lambda tile: 1e-3, noise=0.02, seed=seed), resume=False).best == {}


def test_a_group_is_compiled_once(timed):
    device = timed(seconds)
    found = sweep(device)
    assert found.groups == 5
    assert found.compiled <= found.groups
    assert sweep(timed(seconds), resume=False).compiled == 0


def test_a_sweep_goes_on_where_it_was_interrupted(timed):
    class Interrupt(Watch):
        def __init__(self):
            self.left = 4

        def point(self, sweep, point):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    made = problem.make("gemm_u8s8s32", SHAPE)
    device = timed(seconds)
    device.isa = "avx2"
    first = Sweeper(made, made.step, device, Options(tiles=TILES, search="full", cold="hot"), Interrupt()).run()
    assert first.interrupted
    assert len(first.timed) == 4
    again = timed(seconds)
    second = sweep(again)
    assert (second.resumed, second.interrupted) == (4, False)
    assert second.best == {"mr": 4, "nr": 8, "mc": 24}
    assert len(again.made) == 5 + 5 + 5  # the points that were left, twice, and those in the final
    third = sweep(timed(seconds))
    assert third.resumed == len(third.timed)
    assert sweep(timed(seconds), resume=False).resumed == 0


def test_times_of_other_data_or_caches_are_not_taken(timed):
    sweep(timed(seconds))
    assert sweep(timed(seconds), seed=1).resumed == 0
    assert sweep(timed(seconds), cache="all").resumed == 0


def test_the_budget_ends_a_sweep(timed):
    found = sweep(timed(seconds), budget=1e-9)
    assert found.spent
    assert found.count("left") == 8
    assert found.best == {}


def test_saved_tiles_are_what_plans_take(timed):
    found = sweep(timed(seconds), save=True)
    assert found.saved
    made = problem.make("gemm_u8s8s32", SHAPE)
    plan = TilingExecutor(1, isa="avx2").compile(made.pipe, made.shapes)
    assert "tile tuned at" in plan.explain()
    assert "mr x nr 4 x 8" in plan.explain()
    np.testing.assert_array_equal(plan.run(made.inputs)["y"], made.reference[0]["y"], strict=True)
    other = timed(lambda tile: 1e-3 if not tile else 2e-3)
    assert sweep(other, save=True, resume=False).best == {}
    plan = TilingExecutor(1, isa="avx2").compile(made.pipe, made.shapes)
    assert "tuned" not in plan.explain()  # its own choice turned out to be the best


# A user's own kernel ---------------------------------------------------------------------------------------------------


class Sums:
    """y[m] = the sum of row m, block by block; what happens at a block of 7 or 9 is planted."""

    name = "planted_sums"

    def signature(self):
        return (
            ArgSpec("x", "f32", shape=("M", "K"), follows=("m", None)),
            ArgSpec("y", "f32", "write", shape=("M",), follows=("m",)),
        )

    def index_space(self):
        return IndexSpace((Axis("m", "M"),))

    def operations(self, extents, x, *_):
        return extents["m"] * x.shape[1]

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


@njit(nogil=True, error_model="numpy")
def sums_tile(m0, m1, x, y, block):
    if block == 9:
        return np.int32(3)
    for m in range(m0, m1):
        total = np.float32(0)
        for k0 in range(0, x.shape[1], block):
            for k in range(k0, min(k0 + block, x.shape[1])):
                total += x[m, k]
        y[m] = total + np.float32(block == 7)
    return np.int32(0)


@pytest.fixture
def sums():
    @factory.register("planted_sums", backend="reference")
    def meaning():
        def run(x, y):
            y[...] = np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1]

        return factory.Whole(run)

    @factory.register("planted_sums", backend="cpu", tile_params={"block": TileParam(16, (7, 8, 9, 16, 32))})
    def build():
        return sums_tile

    yield Sums()
    for backend in ("cpu", "reference"):
        factory.unregister("planted_sums", backend)


def test_a_wrong_tile_never_wins_and_a_failing_one_is_named(sums, timed):
    made = problem.make(sums, "6x40")
    device = timed(lambda tile: {7: 1e-9, 8: 1e-6}.get(tile.get("block"), 2e-6))
    found = Sweeper(made, made.step, device, Options(search="full", cold="hot")).run()
    status = {p.tile.get("block"): p for p in found.points}
    assert status[7].status == "wrong"
    assert status[7].p5_us is None
    assert "6 of 6 elements of y differ" in status[7].why
    assert status[9].status == "failed"
    assert "returned status 3" in status[9].why
    assert found.best == {"block": 8}
    assert "wrong" in bench.Result({"model": "", "isa": "", "usable_cores": 1}, [found]).table()


def test_a_users_kernel_is_swept_by_its_own_parameters_and_saved(sums):
    found = bench.sweep(sums, [{"M": 6, "K": 40}], tiles={"block": (8, 32)}, cold="hot", save=True, threads=1)
    (only,) = found.sweeps
    assert only.values == {"block": [8, 32]}
    assert only.operations == 240
    assert only.saved
    plan = TilingExecutor(1).compile(problem.make(sums, "6x40").pipe, {"x": (6, 40)})
    assert ("tuned at M6 K32: block" in plan.explain()) == bool(only.best)


def test_a_parameters_values_are_around_its_default():
    assert TileParam.of(64).choices({}) == (16, 32, 64, 128, 256)
    assert TileParam(None, lambda sizes: [sizes["M"], 0, 4]).choices({"sizes": {"M": 9}}) == (4, 9)
    assert TileParam(1).choices({}) == (1, 2, 4)


# Pipelines -------------------------------------------------------------------------------------------------------------


def two_layers():
    rng = np.random.default_rng(0)
    pipe = Pipeline("two_layers")
    h = pipe.input("x", "u8", ("M", 32))
    for n, (k, m) in enumerate(((32, 512), (512, 32))):
        h = ops.gemm(h, pipe.constant(f"w{n}", rng.integers(-9, 9, (k, m), dtype=np.int8)))
        h = ops.requantize(h, multiplier=np.float32(1e-3), dtype="u8")
    pipe.output("y", h)
    return pipe


def test_the_stages_of_a_pipeline_are_swept():
    found = bench.sweep(pipeline=two_layers(), sizes={"M": 1024}, tiles={"stage": (0, 64)}, search="full", cold="hot")
    (only,) = found.sweeps
    assert {p.tile.get("stage") for p in only.points} == {None, 0, 64}
    assert all(p.status == "ok" for p in only.points)
    assert only.checked == "the reference in NumPy"


def test_a_stage_takes_as_many_rows_as_it_is_told():
    pipe = two_layers()
    x = np.random.default_rng(1).integers(0, 256, (1024, 32), dtype=np.uint8)
    texts, results = {}, set()
    for rows in (0, 48, 128):
        plan = TilingExecutor(1, tile={"gemm_u8s8s32": {"stage": rows}}).compile(pipe, {"x": x.shape})
        texts[rows] = plan.explain()
        results.add(plan.run({"x": x})["y"].tobytes())
    assert "one stage" not in texts[0]
    assert "48 of 1024 rows at a time" in texts[48]
    assert "128 of 1024 rows at a time" in texts[128]
    assert len(results) == 1


def test_a_stage_where_there_is_none_is_an_error():
    pipe = Pipeline("one")
    y = ops.gemm(pipe.input("x", "u8", ("M", 32)), np.ones((32, 4), np.int8))
    pipe.output("y", y)
    with pytest.raises(ArgumentError, match=r"asks for stage=8 at step .* which is in no stage"):
        TilingExecutor(1, tile={"gemm_u8s8s32": {"stage": 8}}).compile(pipe, {"x": (64, 32)})


def test_every_step_of_a_pipeline_in_turn():
    found = bench.sweep(
        pipeline=two_layers(), sizes={"M": 64}, tiles={"nr": (16, 32)}, cold="hot", isa="avx2", rounds=1
    )
    assert [s.step for s in found.sweeps] == ["gemm_u8s8s32", "gemm_u8s8s32_2"] or len(found.sweeps) == 2
    assert all(set(s.values) == {"nr"} for s in found.sweeps)


# Mistakes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernel": "gemm_u8s8s32"}, "which shapes"),
        ({}, "give a kernel or a pipeline"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "search": "best"}, "there is full, race, model"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "cache": "warm"}, "there is hot, weights, all"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "peers": ("mkl",)}, "there is torch, ort"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "threads": 0}, "positive integers"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "device": "tpu"}, "there is cpu, cuda:N and interpreter"),
        ({"kernel": "gemm_u8s8s32", "shapes": "8x8x8", "budget": 0}, "more than nothing"),
    ],
)
def test_a_mistake_says_what_there_is(given, message):
    with pytest.raises(ArgumentError, match=message):
        bench.sweep(**given)


# What is written -------------------------------------------------------------------------------------------------------


@pytest.fixture
def result(timed):
    return Result(
        {"model": "m", "isa": "avx2", "usable_cores": 2, "load_before": {}, "load_after": {}}, [sweep(timed(seconds))]
    )


def test_a_result_comes_back_from_its_file(result, tmp_path):
    result.to_json(tmp_path / "r.json")
    assert Result.load(tmp_path / "r.json") == result
    facts = json.loads((tmp_path / "r.json").read_text())
    assert (facts["schema"], facts["version"]) == ("tilework.sweep", 1)
    facts["sweeps"][0]["points"][0]["of a later version"] = 1
    assert Result.from_dict(facts) == result


OTHER = ("{", "[]", '{"schema": "tilework.sweep", "version": 2}', '{"schema": "tilework.sweep", "version": 1}')


@pytest.mark.parametrize("text", OTHER)
def test_another_file_says_what_was_expected(text, tmp_path):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"is needed|lacks"):
        Result.load(tmp_path / "r.json")


def test_csv_and_markdown_hold_every_point_and_the_choice(result, tmp_path):
    result.to_csv(tmp_path / "r.csv")
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 1 + len(result.sweeps[0].points)
    assert lines[0].endswith("mr,nr,mc")
    result.to_markdown(tmp_path / "r.md")
    assert "| * | mr 4 nr 8 mc 24 |" in (tmp_path / "r.md").read_text()


def test_the_table_says_what_was_chosen_and_from_how_many(result):
    text = result.table()
    assert "*  mr 4 nr 8 mc 24" in text
    assert "9 of" in text
    assert "chosen: mr 4 nr 8 mc 24" in text
    with pytest.raises(ArgumentError, match="there is no peer 'torch'"):
        result.against("torch")


def test_a_planted_stale_line_is_ignored_and_said(timed, caplog):
    sweep(timed(seconds), save=True)
    name = machine_of("cpu", "avx2")
    (line,) = tuning.lines(name, tuning.TUNED)
    tuning.path(name).unlink()
    tuning.append(name, {**line, "source": "0123456789abcdef"})
    made = problem.make("gemm_u8s8s32", SHAPE)
    with caplog.at_level(logging.WARNING, "tilework"):
        plan = TilingExecutor(1, isa="avx2").compile(made.pipe, made.shapes)
    assert "tuned at" not in plan.explain()
    assert f"source: expected {line['source']}, the line has 0123456789abcdef" in caplog.text
