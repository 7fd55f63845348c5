"""What every test may ask for: peers, a GPU, and a line in the closing report."""

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

import hypothesis
import pytest

# The first call of a kernel compiles it, so a deadline for one example would measure the compiler.
hypothesis.settings.register_profile("tilework", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("tilework")


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, default=1, help="how long each test of tests/soak runs")


def _absent(reason, promise):
    """Skip; or fail, where the environment variable `promise` says that what is missing should be here."""
    if os.environ.get(promise) == "1":
        pytest.fail(f"{reason}, but {promise}=1 promises it")
    pytest.skip(f"{reason}; {promise}=1 makes this a failure")


@pytest.fixture(scope="session")
def absent():
    """absent(reason, promise): skip, or fail where the environment variable `promise` is 1."""
    return _absent


@pytest.fixture(scope="session")
def peer():
    """Return a function that imports another library to compare with, or skips: `torch = peer("torch")`."""

    def load(name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            return _absent(f"{name} cannot be imported ({error})", "TILEWORK_REQUIRE_PEERS")

    return load


@pytest.fixture(scope="session")
def gpu():
    """Return numba.cuda where a CUDA device answers, or skip."""
    try:
        from numba import cuda

        found = cuda.is_available()
    except Exception as error:  # a broken driver raises errors of many types
        return _absent(f"CUDA cannot be asked ({error})", "TILEWORK_REQUIRE_GPU")
    return cuda if found else _absent("no CUDA device", "TILEWORK_REQUIRE_GPU")


@pytest.fixture(scope="session")
def fake_module():
    """The module tests/fake_cuda.py."""
    spec = importlib.util.spec_from_file_location("fake_cuda", Path(__file__).with_name("fake_cuda.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake_cuda(monkeypatch, fake_module):
    """A CUDA driver without a device, in the place of cuda.bindings.driver; see fake_cuda.py."""
    from tilework.kernels.cuda import compile, seam

    fake = fake_module.Fake()
    for name, module in {
        "cuda": types.SimpleNamespace(bindings=None),
        "cuda.bindings": types.SimpleNamespace(driver=fake),
        "cuda.bindings.driver": fake,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(seam, "compiler", lambda: None)
    monkeypatch.setattr(compile, "to_ptx", fake_module.compiled)
    yield fake
    assert fake.misused == []


@pytest.fixture
def report(record_property):
    """Return a function that puts a measured figure into the closing report: it informs, and asserts nothing."""
    return record_property


def pytest_terminal_summary(terminalreporter):
    """Print what the tests reported, from whichever process they ran in."""
    tests = [test for kind in ("passed", "failed") for test in terminalreporter.stats.get(kind, ())]
    lines = [f"{name}: {text}" for test in tests for name, text in getattr(test, "user_properties", ())]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.line(line)
