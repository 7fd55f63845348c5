"""The kernel cache: names, damage, private files, and what a second process has to compile."""

import hashlib
import logging
import os
import pickle
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilework
from tilework.executors import tiles
from tilework.kernels import cache, forge

PACKAGE = Path(tilework.__file__).parent
PROGRAM = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
import numpy as np
from tilework.executors import tiles
from tilework.kernels import forge

SOURCE = '''
from numba import njit
{imports}

@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = {expression}
'''
x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
assert tiles.run_whole(forge.Native(SOURCE), (x, y), [4], ()) == 0
print(y.tolist(), forge.Counts.compiled, forge.Counts.loaded)
"""


def program(expression="x[n] + 10", imports=""):
    return PROGRAM.format(expression=expression, imports=imports)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package, which nobody edits meanwhile."""
    copy = tmp_path_factory.mktemp("package") / "tilework"
    for room in ("primitives", "kernels", "executors"):
        shutil.copytree(PACKAGE / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", copy)
    return copy


@pytest.fixture(scope="module")
def start(package):
    """start(folder, text): a process that runs the text on the copy, with this cache folder."""

    def go(folder, text=None):
        path = [str(package.parent), *(p for p in sys.path if p)]
        return subprocess.Popen(
            [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path!r}\n{text or program()}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TILEWORK_CACHE_DIR": str(folder)},
        )

    return go


@pytest.fixture(scope="module")
def run(start):
    """run(folder, text): what such a process prints, and its warnings."""
    return lambda folder, text=None: finished(start(folder, text))


def finished(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), [line for line in err.splitlines() if line.startswith("WARNING")]


RIGHT = "[10, 11, 12, 13]"


@pytest.fixture(scope="module")
def filled(tmp_path_factory, run):
    """A cache folder that one process has filled; copy it before changing it."""
    folder = tmp_path_factory.mktemp("filled") / "made" / "cache"
    assert run(folder) == (f"{RIGHT} 1 0", [])
    return folder


@pytest.fixture
def folder(filled, tmp_path):
    return Path(shutil.copytree(filled, tmp_path / "cache"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty cache folder for this process."""
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(forge, "_entries", {})  # what the process has, it keeps
    return tmp_path / "cache"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Other processes --------------------------------------------------------------------------------------------------


def test_a_second_process_compiles_nothing(filled, run):
    assert run(filled) == (f"{RIGHT} 0 1", [])


def test_a_file_is_named_by_the_hash_of_what_it_depends_on_and_has_its_source_beside_it(filled):
    (entry,) = filled.glob("*.twk")
    assert len(entry.stem) == 40
    assert "x[n] + 10" in entry.with_suffix(".py").read_text()
    assert sorted(p.suffix for p in filled.iterdir()) == [".py", ".twk"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_folder_and_files_are_the_user_s_own(filled):
    assert stat.S_IMODE(filled.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in filled.iterdir()} == {0o600}


def test_a_truncated_file_is_compiled_anew_by_the_next_process(folder, run):
    (entry,) = folder.glob("*.twk")
    entry.write_bytes(entry.read_bytes()[:-100])
    out, said = run(folder)
    assert out == f"{RIGHT} 1 0"
    assert len(said) == 1
    assert "is ignored and compiled anew: its content does not match its hash" in said[0]


def test_processes_may_fill_an_empty_cache_at_the_same_time(tmp_path, start):
    processes = [start(tmp_path / "cache") for _ in range(2)]
    for process in processes:
        out, said = finished(process)
        assert out.startswith(RIGHT)
        assert said == []
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".py", ".twk"]  # and no file half written


def test_an_edited_helper_is_seen(tmp_path, package, run):
    """The fault of numba/numba#9483: editing what a cached function imports left the old machine code in use."""
    text = program("x[n] + inc()", "from tilework.kernels.helper import inc")
    found = []
    for step in (1, 20):
        (package / "kernels" / "helper.py").write_text(
            f"from numba import njit\n\n\n@njit\ndef inc():\n    return {step}\n"
        )
        found.append(run(tmp_path / "cache", text))
    (package / "kernels" / "helper.py").unlink()
    assert found == [("[1, 2, 3, 4] 1 0", []), ("[20, 21, 22, 23] 1 0", [])]


# This process -----------------------------------------------------------------------------------------------------


TILE = forge.Native(
    """from numba import njit

@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = x[n] - 3
"""
)


def made():
    """How many entries a process that has none yet compiles and loads for TILE, which must run."""
    before = forge.Counts.compiled, forge.Counts.loaded
    forge._entries.clear()
    tiles._entry.cache_clear()
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    assert tiles.run_whole(TILE, (x, y), [4], ()) == 0
    assert y.tolist() == [-3, -2, -1, 0]
    return forge.Counts.compiled - before[0], forge.Counts.loaded - before[1]


DAMAGE = {
    "empty": lambda content, name: b"",
    "truncated": lambda content, name: content[: len(content) // 2],
    "a changed byte": lambda content, name: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
    "a changed hash": lambda content, name: content[:20] + bytes([content[20] ^ 1]) + content[21:],
    "another format": lambda content, name: b"something else entirely",
    "no code inside": lambda content, name: sealed(b"not a pickle", name),
    "another pickle": lambda content, name: sealed(pickle.dumps(("a", 1)), name),
    "another entry's file": lambda content, name: sealed(content[len(cache.MAGIC) + 32 :], "0" * 40),
}


def sealed(content, name):
    return cache.MAGIC + hashlib.sha256(name.encode() + b"\0" + content).digest() + content


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_compiled_anew_with_one_warning(here, caplog, damage):
    assert made() == (1, 0)
    assert made() == (0, 1)
    (entry,) = here.glob("*.twk")
    entry.write_bytes(damage(entry.read_bytes(), entry.stem))
    entry.chmod(0o600)
    assert made() == (1, 0)
    assert len(warnings(caplog)) == 1
    assert "is ignored and compiled anew" in warnings(caplog)[0]
    assert made() == (0, 1)  # and it is mended


def test_where_nothing_can_be_written_kernels_are_compiled_with_one_warning(tmp_path, monkeypatch, caplog, here):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert made() == (1, 0)
    assert made() == (1, 0)
    assert len(warnings(caplog)) == 1
    assert "kernels are compiled in each process" in warnings(caplog)[0]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read_and_not_written(here, caplog):
    assert made() == (1, 0)
    here.chmod(0o500)
    try:
        assert made() == (0, 1)
        assert warnings(caplog) == []
        (entry,) = here.glob("*.twk")
        entry.chmod(0)
        assert made() == (1, 0)
        assert len(warnings(caplog)) == 1
    finally:
        here.chmod(0o700)


def test_a_tile_over_objects_of_this_process_is_not_kept(here):
    tile = forge.Native(TILE.source.replace("- 3", "+ three"), scope=(("three", 3),))
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    tiles.run_whole(tile, (x, y), [4], ())
    assert y.tolist() == [3, 4, 5, 6]
    assert not here.exists() or cache.entries() == []


def test_what_was_written_is_read(here):
    assert cache.read("a" * 40) is None
    assert cache.write("a" * 40, b"content", "source")
    assert cache.read("a" * 40) == b"content"
    assert [p.stem for p in cache.entries()] == ["a" * 40]
    assert cache.clear() == 1
    assert list(here.iterdir()) == []
    assert cache.read("a" * 40) is None


def test_damage_warns_once(here, caplog):
    for name in ("a" * 40, "b" * 40):
        cache.write(name, b"content", "")
        (here / f"{name}.twk").write_bytes(b"junk")
        assert cache.read(name) is None
        assert not (here / f"{name}.twk").exists()
    assert len(warnings(caplog)) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX permissions")
def test_a_file_that_others_may_write_is_not_run(here, caplog):
    cache.write("a" * 40, b"content", "")
    (here / f"{'a' * 40}.twk").chmod(0o666)
    assert cache.read("a" * 40) is None
    assert "others may write it" in warnings(caplog)[0]
    cache.write("a" * 40, b"content", "")  # compiled anew, it takes the place of the other
    assert cache.read("a" * 40) == b"content"


def test_an_entry_under_another_name_is_not_run(here, caplog):
    """Who may rename files in the folder could else have one kernel run for another."""
    cache.write("a" * 40, b"content", "")
    os.rename(here / f"{'a' * 40}.twk", here / f"{'b' * 40}.twk")
    assert cache.read("b" * 40) is None
    assert "does not match its hash" in warnings(caplog)[0]


def test_the_source_beside_an_entry_is_for_people_only(here):
    assert made() == (1, 0)
    (source,) = here.glob("*.py")
    source.write_text("raise SystemExit('the source was run')")
    assert made() == (0, 1)


@pytest.mark.skipif(not hasattr(os, "symlink") or sys.platform == "win32", reason="links as POSIX has them")
def test_a_link_in_the_way_is_replaced_and_not_written_through(here, tmp_path):
    (tmp_path / "mine").write_text("precious")
    here.mkdir(exist_ok=True)
    for suffix in (".twk", ".py"):
        (here / f"{'a' * 40}{suffix}").symlink_to(tmp_path / "mine")
    assert cache.write("a" * 40, b"content", "source")
    assert cache.read("a" * 40) == b"content"
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX permissions")
def test_a_file_of_another_user_is_not_run(here, caplog, monkeypatch):
    cache.write("a" * 40, b"content", "")
    mine = (here / f"{'a' * 40}.twk").stat().st_uid
    if mine == 0:
        os.chown(here / f"{'a' * 40}.twk", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert cache.read("a" * 40) is None
    assert "belongs to another user" in warnings(caplog)[0]


def test_the_folder_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWORK_CACHE_DIR", "~/somewhere")
    assert cache.folder() == Path.home() / "somewhere"
    monkeypatch.delenv("TILEWORK_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "tilework"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "tilework"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.folder() == Path.home() / "Library" / "Caches" / "tilework"


def test_a_user_without_a_home_has_no_cache_and_is_told_once(monkeypatch, caplog):
    monkeypatch.delenv("TILEWORK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(cache, "_warned", set())

    def homeless(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert cache.read("a" * 40) is None
    assert not cache.write("a" * 40, b"", "")
    assert cache.entries() == []
    assert cache.clear() == 0
    assert len(warnings(caplog)) == 1


def test_the_stamp_changes_with_every_source(tmp_path):
    (tmp_path / "kernels" / "cpu").mkdir(parents=True)
    (tmp_path / "primitives").mkdir()
    files = [tmp_path / "kernels" / "a.py", tmp_path / "kernels" / "cpu" / "b.py", tmp_path / "primitives" / "c.py"]
    for path in files:
        path.write_text("x = 1\n")
    seen = {cache.stamp(tmp_path)}
    for path in files:
        path.write_text("x = 2\n")
        seen.add(cache.stamp(tmp_path))
    files[0].rename(tmp_path / "kernels" / "d.py")
    seen.add(cache.stamp(tmp_path))
    (tmp_path / "kernels" / "new.py").write_text("")
    seen.add(cache.stamp(tmp_path))
    assert len(seen) == 6
    assert cache.stamp(PACKAGE) == cache.package_stamp()


def test_the_key_depends_on_text_sources_and_compiler_options(monkeypatch):
    from numba.core import config

    seen = {cache.key("a"), cache.key("b")}
    assert cache.key("a") in seen
    monkeypatch.setattr(config, "BOUNDSCHECK", int(not config.BOUNDSCHECK))
    seen.add(cache.key("a"))
    monkeypatch.undo()
    monkeypatch.setattr(cache, "package_stamp", lambda: "another")
    seen.add(cache.key("a"))
    monkeypatch.undo()
    monkeypatch.setattr("numba.__version__", "0.0")
    seen.add(cache.key("a"))
    assert len(seen) == 5
