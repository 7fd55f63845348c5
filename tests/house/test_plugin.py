"""The example of an installable package adds a kernel, a scheme, a backend and an executor to an untouched tilework."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilework.executors import registry
from tilework.kernels import factory
from tilework.kernels.schemes import shipped
from tilework.primitives import plugins
from tilework.primitives.errors import ArgumentError, KernelNotFound, PluginError

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which the package was installed, without a network and without touching this environment."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*install, "--target", str(folder / "site"), str(source)], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def run(site, *command):
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True, text=True, cwd=site, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_runs_unedited_on_the_backend_of_the_package(site):
    result = json.loads(run(site, "-m", "tilework", "demo", "--scheme", "int6_row", "--json"))
    rows = [row for row in result["rows"] if row["executor"] == "blas"]
    assert [row["scheme"] for row in rows] == ["int8 per tensor", "int8 per channel", "int4_g32", "int6_row"]
    assert all(row["same_bytes"] for row in result["rows"] if row["executor"] != "numpy")


KERNEL = """
import numpy as np, tilework as tw

def build(load):
    pipe = tw.Pipeline("near")
    a = pipe.input("a", "u8", ("M", 24))
    kernel = __import__("tilework_blas.distances", fromlist=["abs_distances"])
    pipe.output("y", kernel.abs_distances(a, pipe.input("b", "u8", ("N", 24))))
    return pipe

import sys
if sys.argv[1] == "save":
    build(True).save("near.tw")
else:
    assert "tilework_blas" not in sys.modules
    pipe = tw.Pipeline.load("near.tw")  # the file names the kernel, the entry points lead to it
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (33, 24), dtype=np.uint8), rng.integers(0, 256, (17, 24), dtype=np.uint8)
    right = np.abs(a[:, None].astype(int) - b[None]).sum(2)
    for executor in (tw.executor("reference"), tw.executor("single"), tw.TilingExecutor(threads=2)):
        y = executor.run(pipe, {"a": a, "b": b})["y"]
        assert y.dtype == np.int32 and (y == right).all()
    q = tw.schemes.get("int6_row")
    assert q.bits == 6 and "int6_row" in tw.schemes.names()
    assert repr(tw.executor("blas")) == "BlasExecutor(backend='blas')"
"""


def test_a_saved_pipeline_finds_the_kernel_of_the_package(site):
    run(site, "-c", KERNEL, "save")
    run(site, "-c", KERNEL, "load")


def test_what_nobody_announces_is_named():
    with pytest.raises(ArgumentError, match="no executor 'blsa'"):
        registry.find("blsa")
    with pytest.raises(KernelNotFound, match="on backend 'nowhere'"):
        factory.find("gemm_u8s8s32", "nowhere")


class Point:
    def __init__(self, value, load=None, name="x"):
        self.name, self.value, self.group, self.dist, self._load = name, value, "tilework.schemes", None, load

    def load(self):
        return self._load()


def test_a_package_that_does_not_deliver_is_named(monkeypatch):
    def broken():
        raise RuntimeError("no such library")

    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [Point("mine:scheme", broken)])
    with pytest.raises(PluginError, match=r"'mine:scheme'.*RuntimeError: no such library"):
        shipped.definition("x")
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [Point("mine:scheme", lambda: 3)])
    with pytest.raises(PluginError, match="announced as scheme 'x', but is int"):
        shipped.definition("x")
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [Point("a:b"), Point("c:d")])
    with pytest.raises(PluginError, match="two packages announce 'x'"):
        shipped.definition("x")
