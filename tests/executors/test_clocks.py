"""Clocks that jump: files from the future and from before there were any, time that goes back, years that zip has not."""

import io
import os
import time
import zipfile

import numpy as np
import pytest

import tilework as tw
from tilework.executors.schemes import files
from tilework.kernels import bundle, cache, tuning

TIMES = [0, 1, 2**31 - 1, 2**31 + 5, 2**33]  # 1970, the end of 32 bits, 2242


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(tuning, "_said", set())
    return tmp_path


@pytest.mark.parametrize("when", TIMES)
def test_entries_of_any_age_are_read_listed_and_bundled(folder, monkeypatch, when):
    for n in range(3):
        cache.write(f"{n:040x}", b"content %d" % n, "source")
        for suffix in (".twk", ".py"):
            os.utime(cache.folder() / f"{n:040x}{suffix}", (when + n, when + n))
    assert [cache.read(f"{n:040x}") for n in range(3)] == [b"content 0", b"content 1", b"content 2"]
    assert [path.stem for path in cache.entries()] == [f"{n:040x}" for n in range(3)]  # oldest first
    assert bundle.write(folder / "b.zip") == 3
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(folder / "other"))
    assert bundle.load(folder / "b.zip") == 3
    assert cache.read(f"{2:040x}") == b"content 2"


@pytest.mark.parametrize("when", TIMES)
def test_files_are_written_whatever_the_year_and_are_the_same_each_time(folder, monkeypatch, when):
    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.relu(pipe.constant("c", np.arange(3, dtype=np.float32))))
    tensor = tw.schemes.get("int4_g32").quantize(np.ones((2, 32), np.float32))
    first = io.BytesIO()
    pipe.save(first)
    files.save(folder / "now.npz", {"w": tensor})
    monkeypatch.setattr(time, "time", lambda: float(when))
    again = io.BytesIO()
    pipe.save(again)
    files.save(folder / "then.npz", {"w": tensor})
    assert again.getvalue() == first.getvalue()
    assert (folder / "then.npz").read_bytes() == (folder / "now.npz").read_bytes()
    assert files.load(folder / "then.npz")["w"].dequantize().tolist() == tensor.dequantize().tolist()
    with np.load(folder / "then.npz") as arrays:  # NumPy reads it as well
        assert set(arrays.files) >= {"w.codes", "tilework.schemes"}
    with zipfile.ZipFile(folder / "then.npz") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("when", TIMES)
def test_a_store_whose_time_goes_back_is_read_again(folder, when):
    facts = {"kernel": "k", "form": "f", "dtypes": ["u8"], "sizes": {"M": 8}, "threads": 1}
    tuning.append("cpu", {"kind": "tuned", **facts, "tile": {"m": 1}})
    store = tuning.path("cpu")
    assert [line["tile"] for line in tuning.tuned("cpu")] == [{"m": 1}]
    tuning.append("cpu", {"kind": "tuned", **facts, "tile": {"m": 22}})
    os.utime(store, (when, when))
    assert [line["tile"] for line in tuning.tuned("cpu")] == [{"m": 1}, {"m": 22}]
    store.write_text("")
    os.utime(store, (when - 1 if when else 0, when - 1 if when else 0))
    assert tuning.tuned("cpu") == ()


def test_time_that_goes_back_stops_no_run(monkeypatch):
    """Whatever asks for the time of day gets an earlier one each time; plans, locks and pace do not look at it."""
    now = [4e9]

    def earlier():
        now[0] -= 1e6
        return now[0]

    monkeypatch.setattr(time, "time", earlier)
    monkeypatch.setattr(time, "time_ns", lambda: int(earlier() * 1e9))
    w = np.arange(12, dtype=np.int8).reshape(4, 3)
    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.gemm(pipe.input("x", "u8", ("M", 4)), w))
    plan = tw.TilingExecutor(2).compile(pipe)
    for rows in (1, 5, 300):
        x = np.full((rows, 4), 3, np.uint8)
        for _ in range(3):
            assert plan.run({"x": x})["y"].tolist() == (x.astype(int) @ w.astype(int)).tolist()


def test_an_entry_that_goes_as_the_cache_is_listed_is_no_entry(folder, monkeypatch):
    """Another process clears the cache between the listing of its folder and the look at a file."""
    for n in range(3):
        cache.write(f"{n:040x}", b"content", "source")
    gone = cache.folder() / f"{1:040x}.twk"
    found = type(gone).glob

    def glob(self, pattern):
        for path in sorted(found(self, pattern)):
            if path == gone and gone.exists():
                gone.unlink()
            yield path

    monkeypatch.setattr(type(gone), "glob", glob)
    assert [path.stem for path in cache.entries()] == [f"{0:040x}", f"{2:040x}"]
