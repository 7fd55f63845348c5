"""Arrow and Parquet: columns as arrays on Arrow's own memory, and batches of files for a Stream. Extra: arrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..executors import inputs as doors
from ..primitives.buffer import Buffer
from ..primitives.errors import ArgumentError, DTypeMismatch, FileFormatError, Unsupported
from ..primitives.pipeline import Pipeline

Array = np.ndarray[Any, Any]
VALID = "_valid"  # an input of a column's name and this takes what is not null


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise Unsupported(f"pyarrow cannot be imported ({error}); pip install 'tilework[arrow]'") from error
    return pyarrow


def column(array: Any, name: str = "column") -> tuple[Buffer, Array | None]:
    """An Arrow array as a read-only Buffer on its memory, and where it is not null: bool (n,), None if nowhere.

    Numbers, dates, times and durations come as they are stored; a dictionary's codes as integers. Booleans, of which
    Arrow keeps eight in a byte, are unpacked. What is behind a null is whatever Arrow has there.
    Raises Unsupported for texts and nested types.
    """
    pa = _pyarrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # combining none
            array = pa.array([], array.type)
    valid = None
    if array.null_count:
        valid = _bits(array.buffers()[0], array.offset, len(array))
    if pa.types.is_dictionary(array.type):
        values = column(array.indices, name)[0].view()
    elif pa.types.is_boolean(array.type):
        values = _bits(array.buffers()[1], array.offset, len(array))
    else:
        values = _numbers(array, name)
    return Buffer.from_array(values, readonly=True), valid


def _numbers(array: Any, name: str) -> Array:
    pa = _pyarrow()
    kind, types = array.type, pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
    elif types.is_temporal(kind) and kind.bit_width in (32, 64):
        dtype = np.dtype(f"i{kind.bit_width // 8}")
    else:
        raise Unsupported(
            f"column {name!r} is {kind}: numbers, dates, times, booleans and dictionaries work; a column of texts "
            f"becomes a dictionary by .dictionary_encode()"
        )
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.empty(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def _bits(bitmap: Any, offset: int, count: int) -> Array:
    """The bits of a bitmap as bool (count,)."""
    if bitmap is None or count == 0:
        return np.ones(count, bool)
    raw = np.frombuffer(bitmap, np.uint8)[offset // 8 : (offset + count + 7) // 8]
    return np.unpackbits(raw, bitorder="little")[offset % 8 : offset % 8 + count].view(bool)


def columns(batch: Any, wanted: Iterable[str]) -> dict[str, Array]:
    """The columns of a RecordBatch or Table that are named, as read-only arrays.

    A name that ends in "_valid" stands for where the column before it is not null. A column with nulls for which no
    such name is wanted is an error: a null is no number.
    """
    names = list(wanted)
    found: dict[str, Array] = {}
    known = batch.schema.names
    for name in names:
        base = name.removesuffix(VALID) if name not in known else name
        if base not in known:
            raise ArgumentError(f"there is no column {base!r}; there is {', '.join(known) or 'none'}")
        buffer, valid = column(batch.column(known.index(base)), base)
        if base != name:
            found[name] = np.ones(batch.num_rows, bool) if valid is None else valid
            continue
        if valid is not None and name + VALID not in names:
            raise DTypeMismatch(
                f"column {name!r} has {int((~valid).sum())} nulls; an input {name + VALID!r} (bool) takes where it has none"
            )
        found[name] = buffer.view()
    return found


def read(
    source: str | os.PathLike[str] | Sequence[Any] | Any,
    pipe: Pipeline | Sequence[str],
    *,
    rows: int = 2**17,
    fixed: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Array]]:
    """Batches for a Stream: the columns that a pipeline's inputs name, from Parquet or Arrow files or from memory.

    source   a path, several, a pyarrow Table, a RecordBatchReader, or an iterable of RecordBatches
    pipe     the pipeline, or the names of the columns
    rows     of a batch, at most; only one is in memory at a time
    fixed    inputs of the pipeline that are no columns
    """
    names = [n for n in doors.wanted(pipe) if n not in (fixed or {})] if isinstance(pipe, Pipeline) else list(pipe)
    for batch in _batches(source, names, rows):
        yield columns(batch, names)


def _batches(source: Any, names: Sequence[str], rows: int) -> Iterator[Any]:
    pa = _pyarrow()
    if isinstance(source, (str, os.PathLike)):
        yield from _file(os.fspath(source), names, rows)
    elif isinstance(source, pa.Table):
        yield from source.to_batches(max_chunksize=rows)
    elif isinstance(source, pa.RecordBatch):
        yield source
    elif hasattr(source, "__iter__"):
        for each in source:
            if isinstance(each, pa.RecordBatch):
                yield each
            else:
                yield from _batches(each, names, rows)
    else:
        raise ArgumentError(f"{type(source).__name__} is no source of batches; a path, a Table or RecordBatches work")


def _file(path: str, names: Sequence[str], rows: int) -> Iterator[Any]:
    pa = _pyarrow()
    import pyarrow.parquet as parquet

    try:
        with open(path, "rb") as file:
            magic = file.read(6)
        if magic == b"ARROW1":
            with pa.memory_map(path) as source:
                reader = pa.ipc.open_file(source)
                for n in range(reader.num_record_batches):
                    yield reader.get_batch(n)
            return
        with parquet.ParquetFile(path) as source:
            known = source.schema_arrow.names
            chosen = dict.fromkeys(n if n in known else n.removesuffix(VALID) for n in names)
            yield from source.iter_batches(batch_size=rows, columns=[n for n in chosen if n in known])
    except pa.ArrowInvalid as error:
        raise FileFormatError(f"{path}: no Parquet or Arrow file, or a damaged one ({error})") from error


def table(outputs: Mapping[str, Any]) -> Any:
    """Outputs of one length as a pyarrow Table, on their memory where Arrow can have it there."""
    pa = _pyarrow()
    return pa.table({name: pa.array(np.asarray(x)) for name, x in outputs.items()})


__all__ = ["column", "columns", "read", "table"]
