"""Files that somebody changed: python -m tilework.bench.checks.fuzz --count 1000000

Small valid files of every kind that the library reads are mutated from a seed, bits, words, lengths, pieces, and read
again in one process. A named error is right, and so is a file that still makes sense; any other exception, 5 seconds
and more, and a gigabyte and more are faults, which are printed with the seed that makes them again. Exits with 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw

from .fuzz_corpus import corpus

MEMORY = (
    "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
)  # a folder without a disk: files are made by the thousand
SECONDS = 5.0
BYTES = 1 << 30
WORDS = np.array(
    [0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1], np.uint64
)


LIMIT_AGAIN = 1000  # files between two looks at the memory that the process has by itself


class TooLong(Exception):
    """A file took longer than it may."""


# Changes -------------------------------------------------------------------------------------------------------------


def mutated(rng: np.random.Generator, right: bytes) -> bytes:
    """The file with one to four changes."""
    data = bytearray(right)
    for _ in range(int(rng.integers(1, 5))):
        if not data:
            break
        at = int(rng.integers(len(data)))
        how = int(rng.integers(8))
        if how == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            data[at] = int(rng.integers(256))
        elif how == 2:
            del data[at:]
        elif how == 3:
            del data[at : at + int(rng.integers(1, 17))]
        elif how == 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 17)))
        elif how == 5:
            size = int(rng.choice([1, 2, 4, 8]))
            data[at : at + size] = int(rng.choice(WORDS)).to_bytes(8, "little")[:size]
        elif how == 6:
            start = int(rng.integers(len(data)))
            data[at:at] = data[start : start + int(rng.integers(1, 65))]
        else:
            end = at + int(rng.integers(1, 9))
            data[at:end] = bytes(len(data[at:end]))
    return bytes(data)


def changed(rng: np.random.Generator, right: bytes) -> bytes:
    """A mutated file; of an archive, half of the time one with a mutated member and its checksums right."""
    if not right.startswith(b"PK") or rng.random() < 0.5:
        return mutated(rng, right)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(right)) as archive, zipfile.ZipFile(made, "w") as target:
        names = archive.namelist()
        which = names[int(rng.integers(len(names)))]
        for name in names:
            content = archive.read(name)
            target.writestr(name, mutated(rng, content) if name == which else content)
    return made.getvalue()


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong after so many seconds of the process's own time, or ten times as many on the wall, where there are timers."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    own, wall = time.process_time(), time.monotonic()

    def late(*_: Any) -> None:
        left = seconds - (time.process_time() - own)
        if left <= 0 or time.monotonic() - wall > 10 * seconds:
            raise TooLong
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.1))  # others had the processor

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def bounded(nbytes: int) -> Iterator[None]:
    """MemoryError for whoever asks for so many bytes more than there are now, where the system has limits."""
    try:
        import resource
    except ImportError:
        yield
        return
    pages = Path("/proc/self/statm")
    now = int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    if now:
        resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def fault(read: Callable[[Path], Any], path: Path) -> str | None:
    """What is wrong with how a file was read; None where a named error, or a result, came in time."""
    try:
        with limited(SECONDS):
            read(path)
    except (tw.errors.TileworkError, OSError):
        return None
    except TooLong:
        return f"more than {SECONDS:g} s"
    except MemoryError:
        return f"more than {BYTES >> 20} MiB"
    except Exception:
        return traceback.format_exc(limit=-4)
    return None


def run(
    count: int,
    seed: int = 0,
    kinds: str = "",
    seconds: float = float("inf"),
    each: Callable[[int, int], None] | None = None,
) -> tuple[Counter[str], list[str]]:
    """How many files of each kind were read, and the faults, one text each; each place of a fault is told once."""
    tried: Counter[str] = Counter()
    faults: list[str] = []
    told: set[str] = set()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, _own_cache(name):
        folder = Path(name)
        chosen = {kind: made for kind, made in corpus(folder).items() if kinds in kind}
        if not chosen:
            raise ValueError(f"no kind of file has {kinds!r} in its name; there is {', '.join(corpus(folder))}")
        for kind, (right, read) in chosen.items():
            path = folder / f"right{_suffix(kind)}"
            path.write_bytes(right)
            read(path)  # so that what is imported late does not count
        order = [(kind, right, read, folder / f"mutated{_suffix(kind)}") for kind, (right, read) in chosen.items()]
        gc.freeze()  # what is there by now is no garbage
        with contextlib.ExitStack() as limits:
            for number in range(count):
                if number % LIMIT_AGAIN == 0:
                    limits.close()
                    limits.enter_context(bounded(BYTES))
                kind, right, read, path = order[number % len(order)]
                path.write_bytes(changed(np.random.default_rng([seed, number]), right))
                text = fault(read, path)
                tried[kind] += 1
                if text is not None:
                    last = f"{kind}: {text.splitlines()[-1][:60]} {text.splitlines()[-3:-2]}"
                    if last not in told:
                        told.add(last)
                        faults.append(f"{kind}, seed {seed}, number {number}: {text}")
                if each is not None:
                    each(number + 1, len(faults))
                if time.monotonic() - start > seconds:
                    break
    return tried, faults


def _suffix(kind: str) -> str:
    """The end of a file's name, where a reader goes by it."""
    first = kind.split()[0]
    return f".{first}" if first in ("npz", "safetensors") else ""


@contextlib.contextmanager
def _own_cache(folder: str) -> Iterator[None]:
    """Cache and store of this run are its own."""
    before = os.environ.get("TILEWORK_CACHE_DIR")
    os.environ["TILEWORK_CACHE_DIR"] = str(Path(folder) / "cache")
    try:
        yield
    finally:
        if before is None:
            del os.environ["TILEWORK_CACHE_DIR"]
        else:
            os.environ["TILEWORK_CACHE_DIR"] = before


def main(given: list[str] | None = None) -> int:
    """Mutate and read; 1 where there was a fault."""
    import logging

    from rich.progress import Progress

    parser = argparse.ArgumentParser(prog="python -m tilework.bench.checks.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="", help="only kinds of file whose name holds this")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(given)
    logging.disable(logging.WARNING)  # each damaged entry of the cache says so
    warnings.simplefilter("ignore")  # NumPy and Python remark on headers that they parse
    start = time.monotonic()
    with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("", total=options.count)

        def each(done: int, wrong: int) -> None:
            if done % 1000 == 0:
                bar.update(task, completed=done, description=f"{wrong} faults")
            if bar.disable and done % 100_000 == 0:
                print(f"{done} files, {wrong} faults, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

        try:
            tried, faults = run(options.count, options.seed, options.kind, options.minutes * 60, each)
        except ValueError as error:
            parser.error(str(error))
    for text in faults:
        print(text, end="\n\n")
    kinds = ", ".join(f"{kind} {n}" for kind, n in tried.items())
    print(f"{sum(tried.values())} files, {len(faults)} kinds of fault, {time.monotonic() - start:.0f} s: {kinds}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
