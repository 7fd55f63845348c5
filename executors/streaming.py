"""A pipeline over batches that come one after another, of which no more than a few are in memory.

What the pipeline keeps from run to run is its state. Reading happens on a thread of its own, beside the computing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..primitives.errors import ArgumentError, ShapeMismatch
from ..primitives.pipeline import Pipeline, Value
from ..primitives.sizes import names
from . import inputs as doors
from .locks import Lock

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]

WORKING_SET = 2**22  # bytes of columns, intermediates among them, that a run is to take for each thread
LEAST, MOST = 2**14, 2**20  # rows
AHEAD = 2  # batches read before they are needed


class Stream:
    """Runs a pipeline whose inputs are columns (N, ..) over any number of batches, in order.

    executor  what runs it; it also decides how many threads a batch is worth
    pipe      its inputs have a first dimension of one run-time size, the rows; arguments are given once, by `fixed`
    rows      of a run: batches are cut, without copying, into pieces of so many. Left out: as many as a thread's cache
              holds, whatever the columns are
    fixed     inputs and arguments that are the same for every batch
    ahead     how many batches are read before they are needed
    """

    def __init__(
        self,
        executor: Any,
        pipe: Pipeline,
        *,
        rows: int | None = None,
        fixed: Mapping[str, Any] | None = None,
        ahead: int = AHEAD,
    ) -> None:
        for name, given in (("rows", rows), ("ahead", ahead)):
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
                raise ArgumentError(f"{name}={given!r}; a positive integer is needed")
        self.pipe = pipe
        self.fixed = dict(fixed or {})
        self.ahead = ahead
        self.columns, self.size = _columns(pipe, self.fixed)
        self.rows = rows or rows_of(pipe, self.size, getattr(executor, "threads", 1))
        self.plan = executor.compile(pipe)
        self.batches = 0
        self.done = 0
        self._running = Lock()

    def __repr__(self) -> str:
        return f"<stream of {self.pipe.name!r}: {self.done} rows in {self.batches} batches, {self.rows} rows a run>"

    @property
    def state(self) -> dict[str, Array]:
        """What is kept from batch to batch: {state: array}. Emptied, everything begins anew."""
        state: dict[str, Array] = self.plan.state
        return state

    def run(self, batches: Iterable[Batch]) -> Iterator[dict[str, Array]]:
        """The outputs after each run, in order. A batch is {input: array of n rows}; n may differ from batch to batch.

        Closing the iterator stops the reading. What a batch's source raises is raised here, after the batches before it.
        """
        with self._running:
            for batch in _read_ahead(batches, self.ahead):
                arrays, rows = self._accept(batch)
                for start in range(0, rows, self.rows):
                    piece = {name: array[start : start + self.rows] for name, array in arrays.items()}
                    yield self.plan.run({**piece, **self.fixed})
                    self.done += min(self.rows, rows - start)
                self.batches += 1

    def last(self, batches: Iterable[Batch]) -> dict[str, Array]:
        """Run to the end; the outputs after the last run. Without any rows, those of a run on none."""
        found = None
        for found in self.run(batches):  # noqa: B007
            pass
        return self.plan.run({**self._nothing(), **self.fixed}) if found is None else found  # type: ignore[no-any-return]

    def _accept(self, batch: Batch) -> tuple[dict[str, Array], int]:
        doors.check_names(batch.keys(), self.columns, "input")
        arrays = {name: doors.as_array(value, batch[name]) for name, value in self.columns.items()}
        counts = {len(array) for array in arrays.values()}
        if len(counts) > 1:
            shown = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
            raise ShapeMismatch(f"batch {self.batches}: columns have different numbers of rows: {shown}")
        return arrays, counts.pop() if counts else 0

    def _nothing(self) -> dict[str, Array]:
        empty = {}
        for name, value in self.columns.items():
            assert value.dtype is not None
            empty[name] = np.empty((0, *(int(n) for n in value.shape[1:])), value.dtype.numpy)
        return empty


def _columns(pipe: Pipeline, fixed: Mapping[str, Any]) -> tuple[dict[str, Value], str]:
    """The inputs that come in batches, and the name of the size that is their rows."""
    wanted = doors.wanted(pipe)
    for name in fixed:
        if name not in wanted:
            raise ArgumentError(f"fixed= names {name!r}; the pipeline has {', '.join(wanted) or 'no inputs'}")
    columns = {name: value for name, value in wanted.items() if name not in fixed}
    sizes: set[str] = set()
    for name, value in columns.items():
        first = str(value.shape[0]) if value.shape else ""
        if not first or first not in names(value.shape[0]) or any(not isinstance(n, int) for n in value.shape[1:]):
            raise ArgumentError(
                f"{value.kind} {name!r} is {value!r}: batches have a run-time size first, and known ones after it; "
                f"give it once, by fixed={{{name!r}: ..}}"
            )
        sizes.add(first)
    if len(sizes) != 1:
        raise ArgumentError(f"the columns' rows are called {', '.join(sorted(sizes)) or 'nothing'}; one name is needed")
    return columns, sizes.pop()


def rows_of(pipe: Pipeline, size: str, threads: int) -> int:
    """Rows of a run: a power of two, with which what depends on the rows fits the threads' caches."""
    nbytes = 0
    for value in pipe.values.values():
        if value.dtype is None or not value.shape or size not in names(value.shape[0]):
            continue
        count = 1
        for n in value.shape[1:]:
            count *= n if isinstance(n, int) else 1
        nbytes += count * value.dtype.numpy.itemsize
    room = WORKING_SET * threads // max(nbytes, 1)
    return max(LEAST, min(MOST, 1 << max(room, 1).bit_length() - 1))


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


def _read_ahead(batches: Iterable[Batch], ahead: int) -> Iterator[Batch]:
    """The batches, read on a thread of their own; it ends when this iterator is closed."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=ahead)
    stop = threading.Event()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(_END)
        except BaseException as error:
            put(_Failed(error))

    reader = threading.Thread(target=read, name="tilework reader", daemon=True)
    reader.start()
    try:
        while True:
            item = ready.get()
            if item is _END:
                return
            if isinstance(item, _Failed):
                raise item.error
            yield item
    finally:
        stop.set()
        reader.join()
