"""Arrow columns are arrays on Arrow's memory; nulls are never numbers."""

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, DTypeMismatch, FileFormatError, Unsupported


@pytest.fixture(scope="module")
def pa(absent):
    try:
        import pyarrow
    except ImportError as error:
        return absent(f"pyarrow cannot be imported ({error})", "TILEWORK_REQUIRE_PEERS")
    return pyarrow


def test_numbers_are_not_copied(pa):
    for dtype in ("int8", "uint16", "int32", "int64", "float32", "float64"):
        array = pa.array(np.arange(100, dtype=dtype))[3:50]
        buffer, valid = tw.arrow.column(array)
        found = buffer.view()
        assert valid is None
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, np.arange(3, 50, dtype=dtype), strict=True)
        assert found.ctypes.data == array.buffers()[1].address + 3 * found.itemsize


def test_nulls_booleans_dictionaries_and_times(pa):
    values = [None, 1, 2, None, *range(20)]
    buffer, valid = tw.arrow.column(pa.array(values, pa.int32())[1:])
    assert valid.tolist() == [v is not None for v in values[1:]]
    assert buffer.view()[valid].tolist() == [v for v in values[1:] if v is not None]
    flags = [True, False, True] * 11
    assert tw.arrow.column(pa.array(flags)[5:])[0].view().tolist() == flags[5:]
    codes, valid = tw.arrow.column(pa.array(["b", None, "a", "b"]).dictionary_encode())
    assert codes.view()[valid].tolist() == [0, 1, 0]
    assert tw.arrow.column(pa.array([0, 86400], pa.timestamp("s")))[0].view().tolist() == [0, 86400]
    assert len(tw.arrow.column(pa.chunked_array([], pa.float32()))[0].view()) == 0
    assert tw.arrow.column(pa.chunked_array([[1], [2, 3]], pa.int64()))[0].view().tolist() == [1, 2, 3]


def test_what_is_no_number_is_named(pa):
    with pytest.raises(Unsupported, match=r"column 'a' is string: .*dictionary_encode"):
        tw.arrow.columns(pa.table({"a": ["x"]}), ["a"])
    with pytest.raises(DTypeMismatch, match="column 'a' has 1 nulls; an input 'a_valid'"):
        tw.arrow.columns(pa.table({"a": [1, None]}), ["a"])
    with pytest.raises(ArgumentError, match="no column 'b'; there is a"):
        tw.arrow.columns(pa.table({"a": [1]}), ["b"])


def summed():
    pipe = tw.Pipeline("summed")
    x, there = pipe.input("x", "f32", ("N",)), pipe.input("x_valid", "bool", ("N",))
    codes = pipe.input("codes", "s32", ("N",))
    for name, value in tw.ops.group_by(codes, 2, {"sum": ("sum", x), "rows": "count"}, where=there).items():
        pipe.output(name, value)
    return pipe


def test_files_and_tables_stream_alike(pa, tmp_path):
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    missing = rng.random(5000) < 0.1
    x, codes = rng.standard_normal(5000).astype(np.float32), rng.integers(0, 2, 5000).astype(np.int32)
    table = pa.table({"x": pa.array(x, mask=missing), "other": pa.array(["t"] * 5000), "codes": codes})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=999)
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=700)
    pipe = summed()
    whole = tw.Stream(tw.TilingExecutor(threads=1), pipe).last(
        [{"x": x, "x_valid": ~missing, "codes": codes}]
    )  # what is behind a null does not matter
    for source in (tmp_path / "t.parquet", tmp_path / "t.arrow", table, table.to_batches(1000), [table]):
        found = tw.Stream(tw.TilingExecutor(threads=2), pipe).last(tw.arrow.read(source, pipe, rows=640))
        assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in whole.items()}
    assert whole["rows"].sum() == 5000 - missing.sum()
    assert tw.arrow.table(whole).column("rows").to_pylist() == whole["rows"].tolist()


def test_a_damaged_file_is_named(pa, tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(FileFormatError, match=r"t\.parquet: no Parquet or Arrow file"):
        list(tw.arrow.read(tmp_path / "t.parquet", ["x"]))
