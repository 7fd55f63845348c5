"""What every test may ask for: peers, a GPU, and a line in the closing report."""

import importlib
import os

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
