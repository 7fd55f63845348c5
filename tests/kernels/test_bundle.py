"""Bundles of the kernel cache: what is carried, and what a damaged or hostile one may not do."""

import zipfile

import pytest

from tilework.kernels import bundle, cache
from tilework.primitives.errors import CacheError

NAME = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path


def packed(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_bundle_brings_the_entries_of_a_cache_into_another(folder, monkeypatch):
    cache.write(NAME, b"content", "source")
    assert bundle.write(folder / "b.zip") == 1
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(folder / "other"))
    assert bundle.load(folder / "b.zip") == 1
    assert cache.read(NAME) == b"content"
    assert (folder / "other" / f"{NAME}.py").read_text() == "source"


@pytest.mark.parametrize(
    "name", ["../" + NAME + ".twk", "/" + NAME + ".twk", "C:" + NAME + ".twk", "a/" + NAME + ".twk", NAME + ".so",
             NAME.upper() + ".twk", NAME + ".twk\n", "sitecustomize.py", "..\\" + NAME + ".twk"],
)  # fmt: skip
def test_what_is_no_name_of_an_entry_is_not_unpacked(folder, name):
    cache.write(NAME, b"content", "source")
    raw = (cache.folder() / f"{NAME}.twk").read_bytes()
    cache.clear()
    path = packed(folder / "b.zip", {f"{NAME}.twk": raw, name: raw})
    before = sorted(folder.rglob("*"))
    with pytest.raises(CacheError, match="nothing was loaded"):
        bundle.load(path)
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(CacheError, match="is no name of an entry"):
        cache.restore(name.removesuffix(".twk") + "x", raw, b"")


def test_entries_that_are_damaged_or_renamed_are_left_out(folder):
    cache.write(NAME, b"content", "source")
    raw = (cache.folder() / f"{NAME}.twk").read_bytes()
    cache.clear()
    other = NAME[::-1]
    assert bundle.load(packed(folder / "b.zip", {f"{NAME}.twk": raw[:-1] + b"!", f"{other}.twk": raw})) == 0
    assert cache.entries() == []


def test_entries_are_bounded_before_one_is_unpacked(folder, monkeypatch):
    zeros = {f"{n:040x}.twk": bytes(1 << 20) for n in range(3)}
    with pytest.raises(CacheError, match="entries of 3145728 bytes in a bundle that has at most"):
        bundle.load(packed(folder / "b.zip", zeros, zipfile.ZIP_DEFLATED))
    monkeypatch.setattr(bundle, "LARGEST", 1000)
    with pytest.raises(CacheError, match="is no entry of a kernel cache"):
        bundle.load(packed(folder / "b.zip", zeros))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", bytes(100)])
def test_what_is_no_archive_is_named(folder, content):
    (folder / "b.zip").write_bytes(content)
    with pytest.raises(CacheError, match="not a bundle of a kernel cache"):
        bundle.load(folder / "b.zip")
