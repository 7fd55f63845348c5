"""Kept plans: the same bytes and the same explanation as the plan made anew, and nothing from a file that is not whole."""

import copy
import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilework as tw
from tilework.bench.checks import fuzz
from tilework.executors.addresses import Addresses
from tilework.executors.kept import files, naming
from tilework.executors.kept.plan import KeptPlan
from tilework.executors.plan import TilingPlan
from tilework.kernels import factory, forge
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from tilework.primitives.memory import address_of

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("kept_network", HERE / "kept_network.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
image, network = _module.image, _module.network


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own for kept plans."""
    monkeypatch.setattr(files, "folder", lambda: tmp_path / "plans")
    monkeypatch.setattr(files, "_said", set())
    # Other tests of this process may have added kernels of theirs, or compiled into a cache that is gone.
    monkeypatch.setattr(factory, "_changed", set())
    for source, made in list(forge._entries.items()):
        if not made.scope and forge.kept(made) is None:
            del forge._entries[source]
    return tmp_path / "plans"


def runs(place):
    return sorted(place.glob("*.run"))


@pytest.fixture
def kept(place):
    """A plan made anew and run, and the kept one for the same shapes."""
    made = tw.TilingExecutor(threads=1).compile(network(), {"x": (9, 40)})
    assert type(made) is TilingPlan
    assert len(runs(place)) == 1
    found = tw.TilingExecutor(threads=1).compile(network(), {"x": (9, 40)})
    assert type(found) is KeptPlan
    return made, found


def equal(a, b):
    return a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() and a[n].dtype == b[n].dtype for n in a)


def is_made(plan):
    return "lowered" in vars(plan)


def test_a_kept_plan_gives_the_bytes_of_the_plan_and_is_not_made(kept):
    made, found = kept
    want = made.run({"x": image()})
    for _ in range(3):  # the second and third by the launcher
        assert equal(found.run({"x": image()}), want)
    out = {"y": np.full((9, 24), 77, np.uint8), "sum": np.full(9, np.nan, np.float32)}
    results = found.run({"x": image()}, out=out)
    assert results["y"] is out["y"]
    assert equal(results, want)
    call = found.bind({"x": image()})
    assert equal(call(), want)
    assert equal(call(), want)
    assert not is_made(found)


def test_whatever_else_is_asked_is_answered_by_the_plan_made_anew(kept):
    made, found = kept
    assert found.explain() == made.explain()
    assert is_made(found)
    assert equal(found.run({"x": image()}), made.run({"x": image()}))
    assert found.svg() == made.svg()
    assert repr(found) == repr(made)


def test_other_shapes_and_profiles_make_the_plan(kept):
    made, found = kept
    assert equal(found.run({"x": image(3)}), made.run({"x": image(3)}))
    another = tw.TilingExecutor(threads=1).compile(network(), {"x": (9, 40)})
    assert type(another) is KeptPlan
    assert [s.step for s in another.profile({"x": image()}, repeat=1).steps] == [
        s.step for s in made.profile({"x": image()}, repeat=1).steps
    ]


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({}, ArgumentError),
        ({"x": image(), "z": image()}, ArgumentError),
        ({"x": image().astype(np.float32)}, DTypeMismatch),
        ({"x": image()[:, :39]}, ShapeMismatch),
        ([image()], ArgumentError),
    ],
)
def test_what_is_wrong_is_said_as_the_plan_says_it(kept, inputs, error):
    made, found = kept
    with pytest.raises(error) as expected:
        made.run(inputs)
    with pytest.raises(error) as raised:
        found.run(inputs)
    assert str(raised.value) == str(expected.value)


def test_views_and_outputs_of_any_strides_are_taken(kept):
    made, found = kept
    wide = np.repeat(image(), 2, axis=1)[:, ::2]
    assert equal(found.run({"x": wide}), made.run({"x": image()}))
    out = np.zeros((9, 48), np.uint8)[:, ::2]
    found.run({"x": image()}, out={"y": out})
    assert np.array_equal(out, made.run({"x": image()})["y"])


def test_executor_run_keeps_and_finds_too(place):
    executor = tw.TilingExecutor(threads=2)
    first = executor.run(network(), {"x": image(300)})
    assert len(runs(place)) == 1
    assert equal(executor.run(network(), {"x": image(300)}), first)
    assert equal(tw.SingleThreadExecutor().run(network(), {"x": image(300)}), first)


def test_settings_and_shapes_have_records_of_their_own(place):
    for executor in (tw.TilingExecutor(1), tw.TilingExecutor(1, fuse=False), tw.TilingExecutor(1, isa="generic")):
        executor.run(network(), {"x": image()})
    tw.TilingExecutor(1).run(network("another network"), {"x": image()})
    tw.TilingExecutor(1).run(network(), {"x": image(4)})
    assert len(runs(place)) == 5
    tw.TilingExecutor(1, tile={"gemm_u8s8s32": {"m": 4}}).run(network(), {"x": image()})
    tw.TilingExecutor(1).compile(network()).run({"x": image(5)})  # what is tuned for 5 rows was not asked
    assert len(runs(place)) == 5


def test_a_pipeline_that_is_changed_is_no_longer_what_it_was(place):
    for change in (
        lambda p: p.output("acc", p.values["w"]),
        lambda p: p.input("another", "u8", (3,)),
        lambda p: p.add(p.steps[0].kernel, **{s: v for s, v in p.steps[0].inputs.items()}),
        lambda p: setattr(p.values["w"], "data", np.array(p.values["w"].data)),  # parts that are put in its place
        lambda p: setattr(p.steps[0], "kernel", copy.copy(p.steps[0].kernel)),
        lambda p: p.steps[1].inputs.update(x=p.steps[0].outputs["acc"]) or p.steps.pop(),
        lambda p: p.outputs.pop("sum"),
        lambda p: setattr(p.values["x"], "quant", tw.QuantParams(0.5, 3, "u8")),
    ):
        pipe = network()
        change(pipe)
        assert pipe.identity is None


def test_nothing_is_kept_without_identity_or_where_it_is_turned_off(place, monkeypatch):
    tw.TilingExecutor(1).run(network(None), {"x": image()})
    monkeypatch.setenv("TILEWORK_PLANS", "0")
    tw.TilingExecutor(1).run(network(), {"x": image()})
    assert runs(place) == []


def test_somebody_elses_kernels_turn_it_off(kept, monkeypatch):
    monkeypatch.setattr(factory, "_changed", {"cpu"})
    assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is TilingPlan


@pytest.mark.parametrize("at", [0, 20, 4096, 5000, -300])
def test_a_damaged_file_is_made_anew(kept, place, caplog, at):
    made, _ = kept
    (path,) = runs(place)
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    path.chmod(0o600)
    with caplog.at_level(logging.WARNING, logger="tilework"):
        plan = tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})
    assert type(plan) is TilingPlan
    assert "does not match its hash" in caplog.text
    assert equal(plan.run({"x": image()}), made.run({"x": image()}))
    assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is KeptPlan  # written again


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_cut_file_is_made_anew(kept, place, size):
    (path,) = runs(place)
    os.truncate(path, size)
    assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is TilingPlan


def test_a_whole_file_of_nonsense_is_made_anew(kept, place, caplog):
    (path,) = runs(place)
    for content in (b"", b"\0" * 100, b"\x02\0\0\0\x00\x10\0\0{}" + bytes(5000), b"\xff" * 9000):
        files.write(path.name, content)
        with caplog.at_level(logging.WARNING, logger="tilework"):
            assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is TilingPlan


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_a_file_that_others_may_write_is_not_used(kept, place, caplog):
    (path,) = runs(place)
    path.chmod(0o666)
    with caplog.at_level(logging.WARNING, logger="tilework"):
        assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is TilingPlan
    assert "others may write it" in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_a_file_of_somebody_else_is_not_used(kept, monkeypatch, caplog):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (path,) = runs(files.folder())
    if path.stat().st_uid == 0:  # the administrator's files are anybody's
        os.chown(path, 54321, 54321)
    with caplog.at_level(logging.WARNING, logger="tilework"):
        assert type(tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})) is TilingPlan
    assert "belongs to another user" in caplog.text


def test_the_file_of_another_plan_is_not_used(kept, place):
    made, _ = kept
    tw.TilingExecutor(1).run(network(), {"x": image(4)})
    first, second = runs(place)
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    for m in (9, 4):
        plan = tw.TilingExecutor(1).compile(network(), {"x": (m, 40)})
        assert type(plan) is TilingPlan
        assert equal(plan.run({"x": image(m)}), made.run({"x": image(m)}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("what", ["pipe", "folder", "link", "link to nothing", "device"])
def test_what_is_no_file_is_not_used(kept, place, what):
    made, _ = kept
    (path,) = runs(place)
    content = path.read_bytes()
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        target = {"link": place / "copy", "device": Path(os.devnull)}.get(what, place / "nothing")
        path.symlink_to(target)
        (place / "copy").write_bytes(content[:-1] + b"?")
    plan = tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})
    assert type(plan) is TilingPlan
    assert equal(plan.run({"x": image()}), made.run({"x": image()}))


def test_a_folder_that_is_only_read_is_read(kept, monkeypatch):
    made, _ = kept

    def refuse(*_, **__):
        raise OSError("Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    plan = tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})
    assert type(plan) is KeptPlan
    assert equal(plan.run({"x": image()}), made.run({"x": image()}))


def test_mutated_files_are_made_anew(kept, place):
    """None of them is believed, none ends the process; bench/checks/fuzz.py tries many more without making the plans."""
    made, _ = kept
    want = made.run({"x": image()})
    (path,) = runs(place)
    right = path.read_bytes()
    for n in range(60):
        content = fuzz.changed(np.random.default_rng([6, n]), right)
        path.write_bytes(content)
        plan = tw.TilingExecutor(1).compile(network(), {"x": (9, 40)})
        assert type(plan) is (KeptPlan if content == right else TilingPlan)
        assert equal(plan.run({"x": image()}), want)


def test_files_are_bounded_and_the_oldest_go(place, monkeypatch):
    monkeypatch.setenv("TILEWORK_PLANS_BYTES", "80000")
    assert not files.write("large", bytes(40000))
    for n in range(9):
        assert files.write(f"f{n}", bytes(10000))
        os.utime(place / f"f{n}", (n, n))
    assert sum(p.stat().st_size for p in place.iterdir()) <= 80000
    assert not (place / "f0").exists()
    assert (place / "f8").exists()
    assert files.clear() == 5


def test_sources_that_change_have_another_name(tmp_path):
    for room in ("primitives", "kernels"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text("x = 1\n")
    before = naming._state(tmp_path)
    (tmp_path / "kernels" / "a.py").write_text("x = 2\n")
    assert naming._state(tmp_path) != before


def test_another_process_runs_what_was_kept(kept, place):
    made, _ = kept
    want = made.run({"x": image()})
    text = f"""
import pathlib
import tilework as tw
from kept_network import image, network
from tilework.executors.kept import files, plan as kept
files.folder = lambda: pathlib.Path({str(place)!r})
found = tw.TilingExecutor(threads=1).compile(network(), {{"x": (9, 40)}})
assert type(found) is kept.KeptPlan
for _ in range(2):
    y = found.run({{"x": image()}})
assert "lowered" not in vars(found)
print(y["y"].tobytes().hex(), y["sum"].tobytes().hex())
"""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(tw.__file__).parents[1]), str(HERE), *sys.path]),
    }
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [want["y"].tobytes().hex(), want["sum"].tobytes().hex()]


def test_an_address_before_a_table_is_that_table_s():
    """Code that counts from a first tile is given an address before its table, in which no other one may lie."""
    made = [forge.table_of(forge.entry(forge.Native(TABLE.format(n), raw=True), 0, ()), 2) for n in range(8)]
    addresses = Addresses(())
    for table in made:
        for before in (8, 64, forge.BEFORE, -8):
            place = addresses.place(address_of(table.words) - before)
            assert (place.kind, place.at) == ("table", -before)
            assert place.what is table


TABLE = """
from numba import types


def entry(bases, block, ranges):
    block[0], block[1] = {}, 7
    return types.int32(0)
"""
