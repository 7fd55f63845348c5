"""Files that somebody changed give named errors; a reader that does not is found."""

import numpy as np
import pytest

from tilework.bench.checks import fuzz, fuzz_corpus
from tilework.executors.kept.record import Record
from tilework.executors.schemes import files, get
from tilework.kernels.forge import Table
from tilework.primitives.errors import FileFormatError


@pytest.mark.filterwarnings("ignore")  # NumPy and Python remark on headers that they parse
def test_mutated_files_give_named_errors():
    tried, faults = fuzz.run(450, seed=1)
    assert sum(tried.values()) == 450
    assert not faults, faults[0]


def test_a_reader_that_fails_is_found(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert fuzz.fault(lambda p: p.read_bytes(), path) is None
    assert "IndexError" in fuzz.fault(lambda p: p.read_bytes()[7], path)
    assert fuzz.fault(lambda p: (_ for _ in ()).throw(MemoryError()), path).startswith("more than 1024 MiB")


def test_the_record_of_a_plan_that_is_mutated_is_one(tmp_path):
    """What reading a damaged one raises is not a fault, so that it is read at all is tried here."""
    record = fuzz_corpus.kept_record()
    again = Record.loads(record.dumps())
    assert again.facts == record.facts
    made = again.image.program([1 << 40, 2 << 40], [Table(np.arange(4), None)], [3 << 40, 4 << 40])
    assert len(made) == 1
    (tmp_path / "record").write_bytes(record.dumps())
    fuzz_corpus._read_record(tmp_path / "record")


def test_a_changed_file_is_another_one_and_made_again_by_its_seed():
    right = bytes(range(200))
    made = [fuzz.changed(np.random.default_rng([4, n]), right) for n in range(50)]
    assert sum(m != right for m in made) > 45
    assert made == [fuzz.changed(np.random.default_rng([4, n]), right) for n in range(50)]


def test_parameters_that_another_scheme_stores_are_checked_too(tmp_path):
    """Rows of codes that are too short would be read past their end."""
    tensor = get("nf4_double").quantize(np.ones((4, 128), np.float32))
    files.save(tmp_path / "t.npz", {"w": tensor})
    with np.load(tmp_path / "t.npz") as kept:
        arrays = {name: kept[name] for name in kept.files}
    inner = next(name for name in arrays if name.endswith(".codes") and name != "w.codes")
    for wrong in (arrays[inner][:, :-1], arrays[inner].astype(np.uint16)):
        np.savez(tmp_path / "short.npz", **{**arrays, inner: wrong})
        with pytest.raises(FileFormatError):
            files.load(tmp_path / "short.npz")
