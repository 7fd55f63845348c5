"""Many blocks on many workers: a plan shipped once to each worker of a Dask cluster, results in the order of the blocks.

A worker gets the pipeline with its weights, the settings, and the machine code that was compiled here, under the hash of
what it is to compute; whoever starts later, or again after dying, gets the same. A block whose worker dies is run again, and
because a run holds no state and gives the same bytes wherever it runs, nothing is lost, doubled or different. Extra: dask.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import logging
import os
import pickle
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..kernels import cache, forge
from ..primitives.errors import ArgumentError, PipelineError, Unsupported
from ..primitives.memory import address_of
from ..primitives.pipeline import Pipeline
from ..primitives.sizes import evaluate_shape, names
from ..primitives.storage import save
from . import inputs as doors
from . import launcher
from .program import Program, serial_address
from .tiling import TilingExecutor

log = logging.getLogger("tilework")
Array = np.ndarray[Any, Any]

RETRIES = 3  # of a block whose run failed, or whose worker died under it
AHEAD = 3  # blocks on their way for each thread of the cluster: the workers never wait, and memory stays flat
_runs = itertools.count()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise Unsupported(f"dask cannot be imported ({error}); pip install 'tilework[dask]'") from error
    return distributed


class DaskExecutor:
    """Runs a pipeline over blocks on the workers of a Dask cluster.

    client   a distributed.Client, the address of a scheduler, or None: the current client
    threads  of one run; None: what a worker's host has, divided by the runs that its workers can have at once
    retries  how often a block is run again that failed, beyond those whose worker died
    workers  addresses of workers that may run blocks; None: all, also those that come later
    settings of the TilingExecutor on each worker: isa=, tile=, numerics=, fuse=, chain=
    """

    def __init__(
        self,
        client: Any = None,
        *,
        threads: int | None = None,
        retries: int = RETRIES,
        workers: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        distributed = _distributed()
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ArgumentError(f"threads={threads!r}; a positive integer is needed")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ArgumentError(f"retries={retries!r}; 0 or a positive integer is needed")
        TilingExecutor(1, **settings)  # which refuses what it does not know
        self.client = distributed.Client(client) if isinstance(client, str) else client or _current(distributed)
        self.threads = threads
        self.retries = retries
        self.workers = list(workers) if workers is not None else None
        self.settings = settings
        self.backend = "cpu"

    def __repr__(self) -> str:
        return f"DaskExecutor({self.client.scheduler.address!r}, threads={self.threads})"

    def threads_of_a_run(self) -> int:
        """How many threads a run takes, so that all runs that a host has at once fill it and no more."""
        if self.threads is not None:
            return self.threads
        runs: dict[str, int] = {}
        for worker in self.client.scheduler_info(n_workers=-1)["workers"].values():
            runs[worker["host"]] = runs.get(worker["host"], 0) + worker["nthreads"]
        if not runs:
            return 1
        processors = self.client.run(_processors)
        hosts = {address.rpartition(":")[0].rpartition("/")[2]: n for address, n in processors.items()}
        return max(1, min(hosts.get(host, 1) // n for host, n in runs.items()))

    def compile(self, pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]] | None = None) -> DaskPlan:
        """A plan, already on every worker. With `shapes` its kernels are compiled here first, and shipped along."""
        return DaskPlan(pipe, self, shapes)

    def run(self, pipe: Pipeline, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run once, on one of the workers: {output: array}."""
        (result,) = self.compile(pipe).map([dict(inputs or {})])
        return result

    def reduce(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        merge: Callable[[Any, Any], Any],
        *,
        progress: Any = None,
    ) -> Any:
        """merge(merge(function(items[0]), function(items[1])), ..), with function on the workers, in the order of items.

        For statistics whose merge is exact (`tw.fitting.Histogram`, counts, least and largest) the result does not
        depend on how the items were cut, nor on who dies meanwhile. Raises ArgumentError where there are no items.
        """
        found, begun = None, False
        for part in _in_order(self, ((function, (item,)) for item in items), progress):
            found, begun = (merge(found, part) if begun else part), True
        if not begun:
            raise ArgumentError("reduce: there are no items")
        return found


class DaskPlan:
    """A pipeline on every worker. It has no state: what one block leaves, no other may see."""

    def __init__(
        self, pipe: Pipeline, executor: DaskExecutor, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        pipe.validate()
        if pipe.of_kind("state"):
            raise Unsupported(
                f"pipeline {pipe.name!r} has states, {', '.join(pipe.of_kind('state'))}: blocks that run anywhere have "
                f"none; make partial results and merge them with DaskExecutor.reduce"
            )
        self.pipe = pipe
        self.executor = executor
        self._wanted = doors.wanted(pipe)
        settings = {**executor.settings, "threads": executor.threads_of_a_run()}
        self.threads = settings["threads"]
        code = _machine_code(pipe, settings, shapes) if shapes is not None else {}
        content = _pickled(pipe)
        self.key = _key(pipe, content, settings)
        self._payload = pickle.dumps((content, settings, code))
        executor.client.register_plugin(_shipping()(self.key, self._payload), name=f"tilework-{self.key}")

    def __repr__(self) -> str:
        return f"<plan of {self.pipe.name!r} on {self.executor!r}: {len(self._payload)} bytes for each worker>"

    def map(self, blocks: Iterable[Mapping[str, Any]], *, progress: Any = None) -> Iterator[dict[str, Array]]:
        """{output: array} of every block, in their order; a few blocks for each thread are on their way at a time.

        blocks    {input: array} each
        progress  True: a bar on stderr; or a function that is told how many are done
        """

        def tasks() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
            for n, block in enumerate(blocks):
                if not isinstance(block, Mapping):
                    raise ArgumentError(f"block {n} is {type(block).__name__}; {{input: array}} is needed")
                doors.check_names(block.keys(), self._wanted, "input")
                yield _run_block, (self.key, dict(block))

        return _in_order(self.executor, tasks(), progress)

    def files(
        self, paths: Iterable[Any], read: Callable[[Any], Mapping[str, Any]], *, progress: Any = None
    ) -> Iterator[dict[str, Array]]:
        """The same for files that the workers read themselves: read(path) gives a block, and only its path travels."""
        return _in_order(self.executor, ((_run_file, (self.key, read, path)) for path in paths), progress)

    def array(self, x: Any, output: str | None = None, input: str | None = None) -> Any:
        """A dask.array of an output, block by block along the first axis of a dask.array of the input.

        x  a dask.array of the input's type, in one piece along all axes but the first
        """
        taken = input or _only(self._wanted, "input")
        named = output or _only(self.pipe.outputs, "output")
        value, result = self._wanted[taken], self.pipe.outputs[named]
        if len(self._wanted) != 1:
            raise ArgumentError(f"the pipeline has inputs {', '.join(self._wanted)}; a dask.array is one of one input")
        if any(len(pieces) > 1 for pieces in x.chunks[1:]):
            raise ArgumentError(f"the array is cut into {x.numblocks} blocks; rechunk it to blocks along axis 0 only")
        rows = str(value.shape[0]) if value.shape else ""
        if not result.shape or str(result.shape[0]) != rows or rows not in names(value.shape[0]):
            raise ArgumentError(
                f"output {named!r} is {result!r}, whose rows are not those of input {taken!r}, {value!r}"
            )
        assert result.dtype is not None
        rest = evaluate_shape(result.shape[1:], {}, named)
        return x.map_blocks(
            _run_array, self.key, taken, named, dtype=result.dtype.numpy, chunks=(x.chunks[0], *((n,) for n in rest)),
            new_axis=list(range(x.ndim, len(rest) + 1)) or None,
            drop_axis=list(range(len(rest) + 1, x.ndim)) or None,
            meta=np.empty((0,) * (1 + len(rest)), result.dtype.numpy),
        )  # fmt: skip

    def bag(self, blocks: Any) -> Any:
        """A dask.bag of {output: array}, of a bag of {input: array}."""
        return blocks.map(_run_bag, key=self.key)


# On the workers -------------------------------------------------------------------------------------------------------

_payloads: dict[str, bytes] = {}
_plans: dict[str, Any] = {}
_making = threading.Lock()


def _shipping() -> Any:
    """The plugin that brings a plan to every worker, to those of today and to those that start later."""
    global _Shipped
    if _Shipped is None:
        from distributed.diagnostics.plugin import WorkerPlugin

        class Shipped(WorkerPlugin):  # type: ignore[misc]
            idempotent = True

            def __init__(self, key: str, payload: bytes) -> None:
                self.key, self.payload = key, payload

            def setup(self, worker: Any) -> None:
                receive(self.key, self.payload)

            def __reduce__(self) -> Any:
                return _shipped, (self.key, self.payload)

        _Shipped = Shipped
    return _Shipped


_Shipped: Any = None


def _shipped(key: str, payload: bytes) -> Any:
    return _shipping()(key, payload)


def receive(key: str, payload: bytes) -> None:
    """Keep what a plan is made of, once for each content."""
    _payloads.setdefault(key, payload)


def _plan(key: str) -> Any:
    """The plan of a key, made when it is first run."""
    found = _plans.get(key)
    if found is not None:
        return found
    with _making:
        if key not in _plans:
            pipe, settings, code = pickle.loads(_payloads[key])
            for name, (raw, source) in code.items():
                if name not in {entry.stem for entry in cache.entries()}:
                    cache.restore(name, raw, source)
            _plans[key] = TilingExecutor(**settings).compile(pickle.loads(pipe))
        return _plans[key]


def _run_block(key: str, block: Mapping[str, Any]) -> dict[str, Array]:
    found: dict[str, Array] = _plan(key).run(dict(block))
    return found


def _run_file(key: str, read: Callable[[Any], Mapping[str, Any]], path: Any) -> dict[str, Array]:
    return _run_block(key, read(path))


def _run_array(block: Array, key: str, taken: str, named: str) -> Array:
    return _run_block(key, {taken: np.ascontiguousarray(block)})[named]


def _run_bag(block: Mapping[str, Any], key: str) -> dict[str, Array]:
    return _run_block(key, block)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Here -----------------------------------------------------------------------------------------------------------------


def _in_order(executor: DaskExecutor, tasks: Iterator[tuple[Callable[..., Any], Sequence[Any]]], progress: Any) -> Any:
    """Results of tasks in their order, of which a bounded number is on its way. Left early, the others are cancelled."""
    client, run = executor.client, next(_runs)
    known = client.nthreads()
    threads = sum(known[w] for w in executor.workers or known if w in known)
    waiting: deque[Any] = deque()
    done, told = 0, _told(progress)

    def more() -> None:
        while len(waiting) < AHEAD * max(threads, 1):
            task = next(tasks, None)
            if task is None:
                return
            function, given = task
            name = f"tilework-{os.getpid()}-{run}-{done + len(waiting)}"
            how = {"key": name, "retries": executor.retries, "workers": executor.workers, "pure": False}
            waiting.append(client.submit(function, *given, **how))

    try:
        more()
        while waiting:
            result = waiting[0].result()
            waiting.popleft()
            done += 1
            told(done)
            more()
            yield result
    finally:
        for future in waiting:
            future.cancel()
        told(None)


def _told(progress: Any) -> Callable[[int | None], None]:
    """A function to be told how many are done, and None at the end."""
    if progress is None or progress is False:
        return lambda done: None
    if callable(progress):
        return lambda done: progress(done) if done is not None else None
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(TextColumn("blocks"), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True))
    task = bar.add_task("blocks", total=None)
    bar.start()
    return lambda done: bar.stop() if done is None else bar.update(task, completed=done)


def _pickled(pipe: Pipeline) -> bytes:
    """The pipeline as bytes that a process without the caller's modules can read."""
    import cloudpickle  # type: ignore[import-untyped]

    return cloudpickle.dumps(pipe)  # type: ignore[no-any-return]


def _key(pipe: Pipeline, content: bytes, settings: Mapping[str, Any]) -> str:
    """A name for a pipeline and settings: the same for the same content, where a file could keep the pipeline."""
    digest = hashlib.sha256(repr(sorted(settings.items())).encode())
    try:
        file = io.BytesIO()
        save(pipe, file, functions="source")
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                digest.update(name.encode() + archive.read(name))
    except PipelineError:  # functions that need more than their own text
        digest.update(content)
    return digest.hexdigest()[:32]


def _machine_code(
    pipe: Pipeline, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[bytes, bytes]]:
    """What runs at these shapes, as the kernel cache has it: {name: (file, source)}."""
    binding = TilingExecutor(**settings).compile(pipe, shapes).prepare(shapes)
    serial_address()
    launcher.load()
    entries, tables = forge.known()
    spans = [(address_of(t.words), address_of(t.words) + t.words.nbytes, t) for t in tables]
    functions = {int(word): table for table in tables for word in table.words.tolist()}
    used = {made.key: made for made in entries.values() if f"{forge.PACKAGE}.kernels.dispatch" in made.source}
    for part in binding.parts:
        for row in part.rows if isinstance(part, Program) else ():
            used[row.keep.key] = row.keep
            for word in row.block.tolist():
                near = [t for lo, hi, t in spans if lo <= word < hi]
                table = near[0] if near else functions.get(word)
                made = table.entry if table is not None else entries.get(word)
                if made is not None:
                    used[made.key] = made
    files = {path.stem: path for path in cache.entries()}
    return {
        key: (files[key].read_bytes(), made.source.encode())
        for key, made in used.items()
        if key in files and not made.scope
    }


def _current(distributed: Any) -> Any:
    try:
        return distributed.get_client()
    except ValueError:
        raise ArgumentError(
            "there is no Dask client: give one, DaskExecutor(Client(LocalCluster(n_workers=2, threads_per_worker=1)))"
        ) from None


def _only(found: Mapping[str, Any], what: str) -> str:
    if len(found) != 1:
        raise ArgumentError(f"the pipeline has {len(found)} {what}s, {', '.join(found) or 'none'}; name one by {what}=")
    return next(iter(found))


__all__ = ["DaskExecutor", "DaskPlan"]
