"""The command of checks that draw models operator by operator."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection

Check = Callable[[str, int, bool], tuple[str, str]]


def run(
    program: str, about: str, operators: Collection[str], check: Check, refuses: str, given: list[str] | None
) -> int:
    """Draw, print a line for each operator and for what is not equal, and count; 1 if anything is not equal.

    check    (operator, seed, compiled) -> ("pass", "refused", "wrong" or "error", why)
    refuses  who refuses what is counted apart
    """
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("--count", type=int, default=20, help="draws of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", action="append", help="only this one; may be repeated")
    parser.add_argument("--compiled", action="store_true", help="run compiled steps, not their meaning")
    options = parser.parse_args(given)
    for op in options.op or ():
        if op not in operators:
            parser.error(f"there is no {op!r}; there is {', '.join(sorted(operators))}")
    total: Counter[str] = Counter()
    for op in options.op or sorted(operators):
        tally: Counter[str] = Counter()
        for n in range(options.count):
            status, reason = check(op, options.seed + n, options.compiled)
            tally[status] += 1
            if status in ("wrong", "error"):
                print(f"{op}, seed {options.seed + n}: {status}: {reason}", flush=True)
        print(f"{op:32} {', '.join(f'{count} {status}' for status, count in sorted(tally.items()))}", flush=True)
        total += tally
    print(f"{total['pass']} of {total.total() - total['refused']} equal, {total['refused']} that {refuses}")
    return int(bool(total["wrong"] or total["error"]))
