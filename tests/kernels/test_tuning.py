"""The tuning store: lines are appended whole, found by bucket, and passed over with a reason where they are stale."""

import json
import logging
import os

import pytest

from tilework.kernels import tuning
from tilework.kernels.tuning import Key

MACHINE = "cpu-level"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "_said", set())
    return tmp_path


def key(M=256, K=768, N=3072, **more):
    return Key(
        **{
            "kernel": "k",
            "form": "f",
            "source": "abc",
            "dtypes": ("u8", "s8"),
            "sizes": {"M": M, "K": K, "N": N},
            "threads": 1,
        }
        | more
    )


def tuned(tile, **more):
    tuning.append(MACHINE, {"kind": "tuned", **key(**more).facts(), "tile": tile})


def test_what_is_appended_is_found(folder):
    tuned({"mr": 6})
    assert tuning.find(MACHINE, key())["tile"] == {"mr": 6}
    assert tuning.path(MACHINE) == folder / "tune" / "cpu-level.jsonl"
    assert tuning.path(MACHINE).stat().st_mode & 0o077 == 0
    tuned({"mr": 8})
    assert tuning.find(MACHINE, key())["tile"] == {"mr": 8}  # the latest


def test_points_are_no_tuned_tiles():
    tuning.append(MACHINE, {"kind": "point", **key().facts(), "tile": {"mr": 6}})
    assert tuning.find(MACHINE, key()) is None
    assert [line["tile"] for line in tuning.lines(MACHINE)] == [{"mr": 6}]


@pytest.mark.parametrize(
    ("n", "same", "other"),
    [(1, (1,), (2,)), (8, (8,), (7, 9)), (256, (257, 383), (255, 384)), (768, (769, 1023), (767, 1024))],
)
def test_sizes_of_one_bucket_share_a_tile(n, same, other):
    tuned({"mr": 6}, M=n)
    assert all(tuning.find(MACHINE, key(M=m)) for m in (n, *same))
    assert not any(tuning.find(MACHINE, key(M=m)) for m in other)


def test_the_same_sizes_come_before_the_same_bucket():
    tuned({"mr": 6}, M=256)
    tuned({"mr": 8}, M=300)
    assert tuning.find(MACHINE, key(M=256))["tile"] == {"mr": 6}
    assert tuning.find(MACHINE, key(M=301))["tile"] == {"mr": 8}


@pytest.mark.parametrize(
    "more", [{"kernel": "l"}, {"form": "g"}, {"dtypes": ("u8", "u8")}, {"threads": 2}, {"sizes": {"M": 256, "K": 768}}]
)
def test_what_is_about_something_else_is_not_found(more):
    tuned({"mr": 6})
    assert tuning.find(MACHINE, key(**more)) is None


def test_an_unknown_size_needs_lines_that_agree():
    tuned({"mr": 6}, M=256)
    assert tuning.find(MACHINE, key(M=None))["tile"] == {"mr": 6}
    tuned({"mr": 6}, M=8)
    assert tuning.find(MACHINE, key(M=None))["tile"] == {"mr": 6}
    tuned({"mr": 2}, M=8)
    assert tuning.find(MACHINE, key(M=None)) is None


@pytest.mark.parametrize(("what", "planted"), [("source", "0123"), ("compiler", "numba 0.1, llvm 3"), ("schema", 99)])
def test_a_stale_line_is_ignored_and_says_expected_and_found(what, planted, caplog):
    tuning.append(MACHINE, {"kind": "tuned", **key().facts(), "tile": {"mr": 6}, what: planted})
    expected = {"source": "abc", "compiler": tuning.compiler(), "schema": tuning.SCHEMA}[what]
    with caplog.at_level(logging.WARNING, "tilework"):
        assert tuning.find(MACHINE, key()) is None
        assert tuning.find(MACHINE, key()) is None
    assert [
        r.getMessage()
        for r in caplog.records
        if f"{what}: expected {expected}, the line has {planted}" in r.getMessage()
    ]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "null",
        '{"kind":"tuned"}',
        '{"kind":"tuned","tile":{"mr":"6"},"sizes":{},"dtypes":[]}',
        '{"kind":"tuned","tile":{"mr":-6},"sizes":{},"dtypes":[]}',
        '{"kind":"tuned","tile":{"mr":6},"sizes":{"M":"x"},"dtypes":[]}',
        '{"kind":"tuned","tile":{"mr":true},"sizes":{},"dtypes":[]}',
    ],
)
def test_a_damaged_line_is_passed_over_and_named(damage, caplog):
    tuned({"mr": 6})
    with open(tuning.path(MACHINE), "a") as file:
        file.write(damage.replace("{", '{"kind":"tuned",', 1) if damage == "{" else damage)
    tuned({"mr": 8})
    with caplog.at_level(logging.WARNING, "tilework"):
        found = [line["tile"] for line in tuning.lines(MACHINE)]
    assert found == [{"mr": 6}, {"mr": 8}]
    assert "line 2 is no line of a store" in caplog.text


def test_nothing_is_lost_behind_a_torn_line():
    tuned({"mr": 6})
    with open(tuning.path(MACHINE), "a") as file:
        file.write('{"kind":"tuned","tile"')
    tuned({"mr": 8})
    assert tuning.find(MACHINE, key())["tile"] == {"mr": 8}
    assert all(json.loads(t) for n, t in enumerate(tuning.path(MACHINE).read_text().splitlines()) if n != 1)


def test_a_store_that_cannot_be_written_is_said_once(folder, caplog):
    (folder / "tune").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "tilework"):
        assert not tuning.append(MACHINE, {"kind": "tuned"})
        assert not tuning.append(MACHINE, {"kind": "tuned"})
    assert caplog.text.count("the tuning store cannot be written") == 1
    assert list(tuning.lines(MACHINE)) == []
    assert tuning.find(MACHINE, key()) is None


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="a system that can refuse links")
def test_a_link_in_the_way_is_not_written_through(folder, caplog):
    (folder / "mine").write_text("precious")
    tuning.path(MACHINE).parent.mkdir()
    tuning.path(MACHINE).symlink_to(folder / "mine")
    with caplog.at_level(logging.WARNING, "tilework"):
        assert not tuning.append(MACHINE, {"kind": "point"})
    assert "the tuning store cannot be written" in caplog.text
    assert (folder / "mine").read_text() == "precious"


def test_a_store_that_is_too_large_is_not_read(folder, caplog, monkeypatch):
    tuned({"mr": 6})
    monkeypatch.setattr(tuning, "LARGEST", 10)
    with caplog.at_level(logging.WARNING, "tilework"):
        assert list(tuning.lines(MACHINE)) == []
    assert "has more than 10 bytes and is not read" in caplog.text


def test_names_of_machines_stay_in_the_folder(folder):
    for name in ("../../x", "/etc/x", "C:\\x", "a\0b", "..", ""):
        assert tuning.path(name).parent == folder / "tune"


def test_the_switch_hides_the_store(monkeypatch):
    tuned({"mr": 6})
    monkeypatch.setenv("TILEWORK_TUNED", "0")
    assert tuning.find(MACHINE, key()) is None


def test_a_users_builder_has_a_hash_of_its_own():
    def build():
        return 1

    def other():
        return 2

    assert tuning.source_of(build) != tuning.source_of(other)
    assert tuning.source_of(Key) == tuning.source_of(tuning.find)  # this package's own: all sources are one
