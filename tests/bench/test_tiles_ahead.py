"""Tasks shared between processes: all are done once, what fails is left, and the helpers are gone afterwards."""

import os

import pytest

from tilework.bench.tiles import ahead
from tilework.kernels.forge import Counts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def fail():
    raise RuntimeError("no such tile")


def test_every_task_is_done_once(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "usable_cores", lambda: 3)

    def task(n):
        def run():
            Counts.compiled += 1
            (tmp_path / f"{n} {os.getpid()}").touch()

        return run

    before = Counts.compiled
    try:
        helpers = ahead.Helpers([task(n) for n in range(40)] + [fail])
        elsewhere = helpers.run()
        assert Counts.compiled - before + elsewhere == 40
    finally:
        Counts.compiled = before
    done = sorted(int(p.name.split()[0]) for p in tmp_path.iterdir())
    assert done == list(range(40))
    assert helpers.children == []


def test_one_processor_does_all_by_itself(monkeypatch):
    monkeypatch.setattr(ahead, "usable_cores", lambda: 1)
    done = []
    assert ahead.Helpers([lambda n=n: done.append(n) for n in range(5)]).run() == 0
    assert done == [0, 1, 2, 3, 4]


def test_ctrl_c_ends_the_helpers(monkeypatch):
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)
    parent = os.getpid()

    def interrupted():
        if os.getpid() == parent:
            raise KeyboardInterrupt
        while True:
            pass

    helpers = ahead.Helpers([interrupted, interrupted])
    ((child, _),) = helpers.children
    with pytest.raises(KeyboardInterrupt):
        helpers.run()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
