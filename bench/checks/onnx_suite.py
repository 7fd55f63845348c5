"""`python -m tilework.bench.checks.onnx_suite [PATTERN] [--list] [--meaning]`: onnx's own backend tests, run and counted.

What needs a download (the real models) is left out. A case that is refused with a named error counts as refused, one
that gives another answer as wrong. --list names each that did not pass; --most stops after so many seconds.
"""

from __future__ import annotations

import argparse
import collections
import re
import time
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

from ...primitives.errors import TileworkError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def cases(pattern: str = "", meaning: bool = False) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, test) of the suite whose names hold a pattern: compiled for the CPU, or by the steps' meaning."""
    import onnx.backend.test

    from ...executors import SingleThreadExecutor
    from ...frontends.onnx import backend as compiled

    class Meaning(compiled.TileworkBackend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
            return compiled.Prepared(model, SingleThreadExecutor("reference"))

    backend: Any = Meaning if meaning else compiled

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = onnx.backend.test.BackendTest(backend, __name__)
    titles = {"".join(part.title() for part in re.split("[-_]", kind)): kind for kind in KINDS}
    for title, group in sorted(suite.test_cases.items()):
        kind = next((k for t, k in titles.items() if t.lower() in title.lower()), None)
        if kind is None:
            continue
        for name in unittest.TestLoader().getTestCaseNames(group):
            if name.endswith("_cpu") and re.search(pattern, name):
                yield kind, name.removesuffix("_cpu"), group(name)


def outcome(test: Any) -> tuple[str, str]:
    """ "passed", "refused", "wrong" or "skipped", and what was said."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test.run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if result.wasSuccessful():
        return "passed", ""
    said = next(text for _, text in (*result.failures, *result.errors))
    last = said.strip().splitlines()[-1]
    named = {kind.__name__ for kind in _errors(TileworkError)}
    found = re.search(r"^(?:[\w.]+\.)?(\w+): ", last)
    refused = found is not None and (found[1] in named or "tilework.primitives.errors." in said)
    return ("refused" if refused else "wrong"), last


def _errors(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    subs: list[type[Exception]] = type.__subclasses__(kind)
    for sub in subs:
        yield from _errors(sub)


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="onnx_suite", description="onnx's own backend tests, run and counted.")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--meaning", action="store_true")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="SECONDS")
    given = parser.parse_args(args)
    tally: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    start = time.monotonic()
    for kind, name, test in cases(given.pattern, given.meaning):
        if time.monotonic() - start > given.most:
            print(f"stopped after {given.most:.0f} s")
            break
        what, said = outcome(test)
        tally[kind][what] += 1
        if given.list and what not in ("passed", "skipped"):
            print(f"{what} {name}: {said[:200]}", flush=True)
    for kind, counts in tally.items():
        print(f"{kind:18}", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    total = sum(tally.values(), collections.Counter())
    print(f"all: {total['passed']} of {sum(total.values()) - total['skipped']} passed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
