"""Files that appear whole or not at all."""

import os
import sys

import pytest

from tilework.primitives.placing import placed


def test_a_file_is_there_whole_or_as_it_was(tmp_path):
    path = tmp_path / "a"
    with placed(path) as part:
        part.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"

    def interrupted():
        with placed(str(path)) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_what_was_never_written_is_an_error_and_takes_nothing_away(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileNotFoundError), placed(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="links and permissions as POSIX has them")
def test_a_link_stays_a_link_and_permissions_stay(tmp_path):
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_bytes(b"old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    with placed(link) as part:
        part.write_bytes(b"new")
    assert link.is_symlink()
    assert kept.read_bytes() == b"new"
    assert kept.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not os.path.exists(os.devnull), reason="no such device")
def test_a_device_is_written_to_itself():
    with placed(os.devnull) as part:
        assert str(part) == os.path.realpath(os.devnull)
        part.write_bytes(b"x")
    assert os.path.exists(os.devnull)
