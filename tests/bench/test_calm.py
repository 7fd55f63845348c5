"""The probe of a core that is our own: what is far slower than the fastest probe is not calm."""

from tilework.bench.machine import calm


def test_a_probe_far_above_the_fastest_is_not_calm(monkeypatch):
    probe = calm.Calm()
    assert 0 < probe.best < 1e4
    monkeypatch.setattr(probe, "best", 10.0)
    for us, expected in ((10.5, True), (13.0, False), (8.0, True), (8.5, True), (9.5, False)):
        monkeypatch.setattr(probe, "_probe", lambda us=us: us)
        assert probe() is expected
    assert probe.best == 8.0
    assert probe.wait(0.0) is False
    monkeypatch.setattr(probe, "_probe", lambda: 8.0)
    assert probe.wait(0.0) is True
