"""A tuning store of its own for every test, and devices whose time is known."""

import numpy as np
import pytest

from tilework.bench.machine import ceilings
from tilework.bench.tiles import sweep as sweeps
from tilework.bench.tiles.plans import Device
from tilework.kernels import tuning


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store; compiled kernels stay where they are. Ceilings are made up, so nothing is probed; two passes do."""
    monkeypatch.setattr(sweeps, "PASSES", 2)
    monkeypatch.setattr(tuning, "path", lambda machine: tmp_path / "tune" / f"{machine}.jsonl")
    monkeypatch.setattr(tuning, "_said", set())
    monkeypatch.delenv("TILEWORK_TUNED", raising=False)
    made = ceilings.Ceilings(
        "made-up",
        "made up",
        1,
        {"dot": 400.0, "fma": 100.0},
        {"l1": 200.0, "l2": 100.0, "l3": 60.0, "memory": 20.0},
        {"l1": 150.0, "l2": 80.0, "l3": 50.0, "memory": 15.0},
        0.0,
        "today",
    )
    monkeypatch.setattr(ceilings, "known", lambda *more: made)
    monkeypatch.setattr(ceilings, "read", lambda *more: made)
    return tmp_path / "tune"


class Timed(Device):
    """A device where a tile takes as long as `seconds(tile)` says, times a noise of its own."""

    def __init__(self, seconds, noise=0.0, seed=0):
        super().__init__(1)
        self.seconds, self.noise = seconds, noise
        self.random = np.random.default_rng(seed)
        self.made = []
        self.timer, self.calm = self, None

    def make(self, problem, step="", tile=None):
        ready = super().make(problem, step, tile)
        self.made.append(dict(tile or {}))
        inner = ready.call

        def call():
            return inner()

        call.tile = dict(tile or {})
        ready.call = call
        return ready

    def yardstick(self):
        return None

    def time(self, call, n):
        return n * self.seconds(getattr(call, "tile", {})) * (1 + self.noise * abs(self.random.standard_normal()))


@pytest.fixture
def timed():
    return Timed
