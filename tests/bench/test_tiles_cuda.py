"""Sweeps on a GPU: times are those between two events in the stream; the rest is as on the CPU."""

import pytest

from tilework import bench
from tilework.bench.tiles import problem
from tilework.bench.tiles.cuda import CudaDevice
from tilework.bench.tiles.plans import Device
from tilework.bench.tiles.sweep import Options, Sweeper
from tilework.executors import CudaExecutor
from tilework.executors.cuda.timer import EventTimer
from tilework.kernels.cuda import gemm_mma
from tilework.primitives.errors import ArgumentError, TileworkError

pytestmark = pytest.mark.usefixtures("store")


class Api:
    """What EventTimer needs of the driver: a clock that launches move, in milliseconds, and a host that runs ahead of it."""

    def __init__(self):
        self.now_ms, self.made, self.at, self.log = 0.0, 0, {}, []

    def cuEventCreate(self, flags):
        self.made += 1
        return (0, self.made)

    def cuEventRecord(self, event, stream):
        self.log.append(("record", stream))
        self.at[event] = self.now_ms
        return (0,)

    def cuEventSynchronize(self, event):
        self.log.append(("synchronize", event))
        return (0,)

    def cuEventElapsedTime(self, begin, end):
        assert self.log[-1] == ("synchronize", end)
        return (0, self.at[end] - self.at[begin])


class Runner:
    """A driver without a device."""

    cc = (9, 0)
    stream = "stream 7"

    def __init__(self):
        self.api = Api()

    def call(self, result, what):
        assert result[0] == 0, what
        return result[1] if len(result) == 2 else None

    def enter(self):
        return None


def test_events_time_what_the_gpu_does():
    runner = Runner()

    def call():
        runner.api.now_ms += 0.25

    assert EventTimer(runner).time(call, 8) == pytest.approx(2e-3)
    assert runner.api.log == [("record", "stream 7"), ("record", "stream 7"), ("synchronize", 2)]


class Executor:
    """Runs on the CPU, and says that the GPU took as long as the tile makes it take."""

    runner = Runner()
    machine = "cuda-sm_90"

    def __init__(self, device, tile, tuned):
        assert (device, tuned) == ("cuda:0", False)
        self.tile = tile
        self.inner = Device(1, "avx2").executor(tile)

    def compile(self, pipe, shapes):
        plan, api = self.inner.compile(pipe, shapes), self.runner.api
        rows = next(iter(self.tile.values()), {}).get("mr", 0)

        def launch():
            api.now_ms += {0: 3.0, 2: 2.0, 4: 1.0}[rows]

        plan.launches = lambda shapes: launch
        return plan


def test_a_sweep_takes_the_gpus_time():
    device = CudaDevice("cuda:0", Executor)
    made = problem.make("gemm_u8s8s32", "16x32x32")
    options = Options(tiles={"mr": (2, 4)}, search="full", cold="hot")
    found = Sweeper(made, made.step, device, options).run()
    assert found.best == {"mr": 4}
    assert found.device == "cuda:0"
    assert [p.p5_us for p in found.timed] == pytest.approx([1000.0, 2000.0, 3000.0])
    assert Sweeper(made, made.step, CudaDevice("cuda:0", Executor), options).run().resumed == 3


def test_the_interpreter_checks_every_tile():
    tiles = {"bm": (32, 64), "bn": (32,), "wm": (1, 2), "wn": (1, 4), "stages": (2,)}
    found = bench.sweep(
        "gemm_u8s8s32", "33x70x35", device="interpreter", tiles=tiles, search="full", cold="hot", rounds=1, budget=300
    )
    (only,) = found.sweeps
    assert only.dtypes[:2] == ["u8", "s8"]
    assert only.count("wrong") == only.count("failed") == 0
    assert [p.tile for p in only.timed if p.tile]
    assert any("multiples of 16" in p.why for p in only.points if p.status == "pruned")


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        ({"bm": 24}, "multiples of 16 rows"),
        ({"stages": 4}, "two or three stages"),
        ({"bm": 32, "bn": 16, "wn": 1, "wm": 1}, ""),
    ],
)
def test_a_tile_that_no_block_can_have_is_refused(tile, message):
    if not message:
        assert gemm_mma.tile_of(10, 10, tile).threads == 32
        return
    with pytest.raises(ArgumentError, match=message):
        gemm_mma.tile_of(10, 10, tile)


def test_an_executor_takes_the_tile_that_it_is_given():
    made = problem.make("gemm_u8s8s32", "33x70x35")
    plan = CudaExecutor("interpreter", tile={made.step: {"bm": 32, "bn": 32, "wm": 1, "wn": 1}}).compile(
        made.pipe, made.shapes
    )
    grids = [node.launch.grid for node in plan.graph(made.shapes) if "gemm" in node.name]
    assert (2, 2, 1) in grids


def test_without_a_gpu_it_is_said():
    try:
        CudaExecutor("cuda:0")
    except TileworkError:
        with pytest.raises(TileworkError, match=r"CUDA"):
            CudaDevice("cuda:0")
    else:
        pytest.skip("there is a GPU")


def test_a_real_gpu_is_timed(gpu):
    """The clock of a real GPU runs with its work."""
    found = bench.sweep(
        "gemm_u8s8s32", "256x256x256", device="cuda:0", tiles={"bm": (64, 128)}, search="full", cold="hot"
    )
    assert all(p.status in ("ok", "pruned") for p in found.sweeps[0].points)
    assert all(p.p5_us > 0 for p in found.sweeps[0].timed)
