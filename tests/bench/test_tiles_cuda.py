"""Sweeps on a GPU: times are those between two events in the stream; the rest is as on the CPU."""

import pytest

from tilework import TilingExecutor
from tilework.bench.tiles import problem
from tilework.bench.tiles.cuda import CudaDevice
from tilework.bench.tiles.sweep import Options, Sweeper
from tilework.executors.cuda_timer import EventTimer
from tilework.primitives.errors import TileworkError

pytestmark = pytest.mark.usefixtures("store")


class Gpu:
    """What EventTimer needs of numba.cuda: a clock that calls move, in milliseconds, and a host that runs ahead of it."""

    def __init__(self):
        self.now_ms = 0.0
        self.log = []

    def default_stream(self):
        return "stream 0"

    def event(self, timing):
        assert timing
        gpu = self

        class Event:
            def record(self, stream):
                gpu.log.append(("record", stream))
                self.at = gpu.now_ms

            def synchronize(self):
                gpu.log.append(("synchronize", None))

        return Event()

    def event_elapsed_time(self, begin, end):
        assert self.log[-1][0] == "synchronize"
        return end.at - begin.at


class Executor:
    """Runs on the CPU, and says that the GPU took as long as the tile makes it take."""

    def __init__(self, gpu, device, tile):
        self.gpu, self.tile = gpu, tile
        self.inner = TilingExecutor(1, isa="avx2", tile=tile, tuned=False)

    def compile(self, pipe, shapes):
        plan, gpu = self.inner.compile(pipe, shapes), self.gpu
        rows = next(iter(self.tile.values()), {}).get("mr", 0)
        bind = plan.bind

        def bound(inputs, outputs):
            call = bind(inputs, outputs)

            def run():
                gpu.now_ms += {0: 3.0, 2: 2.0, 4: 1.0}[rows]
                return call()

            return run

        plan.bind = bound
        return plan


def test_events_time_what_the_gpu_does():
    gpu = Gpu()

    def call():
        gpu.now_ms += 0.25

    timer = EventTimer(gpu)
    assert timer.time(call, 8) == pytest.approx(2e-3)
    assert gpu.log == [("record", "stream 0"), ("record", "stream 0"), ("synchronize", None)]


def test_a_sweep_takes_the_gpus_time():
    gpu = Gpu()
    device = CudaDevice("cuda:0", lambda device, tile: Executor(gpu, device, tile), EventTimer(gpu))
    made = problem.make("gemm_u8s8s32", "16x32x32")
    found = Sweeper(made, made.step, device, Options(tiles={"mr": (2, 4)}, search="full", cold="hot")).run()
    assert found.best == {"mr": 4}
    assert found.device == "cuda:0"
    assert [p.p5_us for p in found.timed] == pytest.approx([1000.0, 2000.0, 3000.0])
    again = Sweeper(made, made.step, device, Options(tiles={"mr": (2, 4)}, search="full", cold="hot")).run()
    assert again.resumed == 3


def test_without_a_gpu_it_is_said(gpu_is_absent):
    with pytest.raises(TileworkError, match=r"CUDA"):
        CudaDevice("cuda:0")


@pytest.fixture
def gpu_is_absent():
    try:
        from numba import cuda

        if cuda.is_available():
            pytest.skip("there is a GPU")
    except Exception:  # a broken driver is an absent one
        return


def test_a_real_gpu_is_timed(gpu):
    """The clock of a real GPU runs with its work."""
    timer = EventTimer(gpu)
    assert 0 <= timer.time(lambda: None, 3) < 1.0
