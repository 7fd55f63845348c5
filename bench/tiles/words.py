"""What the command line's words stand for, and where a result goes."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...primitives.errors import ArgumentError, FileFormatError
from ...primitives.pipeline import Pipeline
from . import api, space
from .result import Result

SPEC_FIELDS = (
    "kernel", "shapes", "pipeline", "sizes", "step", "threads", "device", "isa", "tiles", "search", "budget", "cache",
    "cold", "peers", "resume", "save", "rounds", "seed", "output", "scheme",
)  # fmt: skip


def split(shapes: Sequence[str] | None, tiles: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """(shapes, tile values): `--tiles mr=4,6 nr=16,32` leaves its second word among the shapes. Sizes begin upper-case."""
    values = [word for each in tiles or () for word in each.split()]
    left: list[str] = []
    for word in shapes or ():
        (values if "=" in word and word[:1].islower() else left).append(word)
    return left, values


def tiles_of(values: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    """--tiles; None where there are none."""
    return space.parse(values) if values else None


def seconds(text: str) -> float:
    """ "60s", "2m" or a number of seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        found = float(number) * unit
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ArgumentError(f"time {text!r}: a number of seconds is needed, or like 90s, 2m, 1h")
    return found


def percent(text: str) -> float:
    """ "2.5%", or "0.025"."""
    try:
        found = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        found = -1.0
    if not 0 <= found < 100:
        raise ArgumentError(f"{text!r}: a share is needed, like 2.5% or 0.025")
    return found


def counts(text: str) -> tuple[int, ...]:
    """ "1,2"."""
    parts = text.split(",")
    if not all(n.isdigit() and int(n) for n in parts):
        raise ArgumentError(f"--threads {text!r}: positive integers with commas between are needed, like 1,2")
    return tuple(map(int, parts))


def shape_of(text: str) -> Any:
    """ "256x768x3072" as it is; "M=256,K=768" as a dictionary."""
    if "=" not in text:
        return text
    found = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not (name and number.isdigit()):
            raise ArgumentError(f"shape {text!r}: NAME=N,NAME=N is needed")
        found[name] = int(number)
    return found


def sizes_of(given: Sequence[str] | None) -> dict[str, int]:
    """--size NAME=N."""
    found = {}
    for word in given or ():
        name, _, number = word.partition("=")
        if not (name and number.isdigit()):
            raise ArgumentError(f"--size {word!r} is not NAME=N")
        found[name] = int(number)
    return found


def no_shapes(given: Sequence[str] | None) -> None:
    if given:
        raise ArgumentError(f"a pipeline has sizes and no shapes: give --size NAME=N instead of {given[0]!r}")


def kernel_of(text: str) -> Any:
    """A kernel's name, or what a name in a script stands for: a kernel, a class of kernels, or a function that makes one."""
    return from_script(text) if ".py:" in text else text


def pipeline_of(text: str) -> Pipeline:
    """A saved pipeline, or file.py:name."""
    from ..targets import load

    return load(text)


def maker_of(output: str, scheme: str | None) -> dict[str, Any]:
    """What a kernel's maker is told beside the shape."""
    found: dict[str, Any] = {"output": output} if output else {}
    if scheme:
        found["scheme"] = from_script(scheme) if ".py:" in scheme else scheme
    return found


def from_script(text: str) -> Any:
    """What a name in a script holds. Running the script may register kernels, as importing it would."""
    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise ArgumentError(f"there is no file {path!r}")
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            scope = runpy.run_path(path, run_name=Path(path).stem)
    finally:
        sys.path.pop(0)
    if name not in scope:
        raise ArgumentError(f"{name!r} in {path} does not exist")
    return scope[name]


def run_spec(path: str, done: Callable[[Result], None] | None = None) -> Result:
    """Run the sweeps of a file; `done` gets the result so far after each.

    Raises FileFormatError for what is no such file, and ArgumentError for an entry that cannot be swept, naming it.
    """
    from .progress import Bar

    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(str(error)) from error
    except ValueError as error:
        raise FileFormatError(f"{path} is no JSON: {error}") from None
    entries = found.get("sweeps") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
        raise FileFormatError(f'{path}: {{"sweeps": [{{..}}, ..]}} is needed')
    result: Result | None = None
    for n, entry in enumerate(entries):
        unknown = entry.keys() - set(SPEC_FIELDS)
        if unknown:
            raise FileFormatError(
                f"{path}, sweep {n}: {', '.join(sorted(unknown))} unknown; there is {', '.join(SPEC_FIELDS)}"
            )
        try:
            made = _run_entry(dict(entry), Bar())
        except (ArgumentError, TypeError) as error:
            raise ArgumentError(f"{path}, sweep {n}: {error}") from error
        if result is None:
            result = made
        else:
            result.sweeps += made.sweeps
            result.ceilings |= made.ceilings
            result.machine["load_after"] = made.machine["load_after"]
        if done is not None:
            done(result)
        if any(s.interrupted for s in made.sweeps):
            break
    assert result is not None
    return result


def _run_entry(entry: dict[str, Any], watch: Any) -> Result:
    entry["maker"] = maker_of(entry.pop("output", ""), entry.pop("scheme", None))
    tiles = entry.get("tiles")
    if isinstance(tiles, Mapping):
        entry["tiles"] = space.parse(
            [f"{k}={v if isinstance(v, str) else ','.join(map(str, v))}" for k, v in tiles.items()]
        )
    if isinstance(entry.get("budget"), str):
        entry["budget"] = seconds(entry["budget"])
    if "pipeline" in entry:
        entry["pipeline"] = pipeline_of(entry["pipeline"])
    else:
        entry["kernel"] = kernel_of(entry.get("kernel", "gemm_u8s8s32"))
        entry["shapes"] = [shape_of(s) if isinstance(s, str) else s for s in entry.get("shapes", ())]
    return api.sweep(entry.pop("kernel", ""), entry.pop("shapes", ()), watch=watch, **entry)


def give(
    result: Result,
    json_file: str | None,
    html: str | None,
    md: str | None,
    csv: str | None,
    pictures: Sequence[str] | None,
    heat: str | None,
    top: int,
) -> None:
    """Print a result, and write what was asked for."""
    from ..pictures import terminal
    from .report import show

    axes = None
    if heat:
        x, _, y = heat.partition(",")
        if not (x and y):
            raise ArgumentError(f"--heatmap {heat!r}: two parameters with a comma between are needed, like mc,kc")
        axes = (x, y)
        if not any({x, y} <= s.values.keys() for s in result.sweeps):
            known = ", ".join(dict.fromkeys(n for s in result.sweeps for n in s.values)) or "nothing"
            raise ArgumentError(f"--heatmap {heat}: {known} was varied")
    if json_file == "-":
        print(json.dumps(result.to_dict(), indent=1, allow_nan=False))
    else:
        show(result, top=top, heat=axes)
        drawn = terminal.pictures(result)
        if drawn:
            print(drawn)
        if json_file:
            result.to_json(json_file)
    if md:
        result.to_markdown(md)
    if csv:
        result.to_csv(csv)
    if html:
        result.to_html(html)
    for path in pictures or ():
        from ..pictures.figures import draw

        draw(result, path, axes)
    written = [f for f in (json_file, md, csv, html, *(pictures or ())) if f and f != "-"]
    if written:
        print(f"wrote {', '.join(written)}", file=sys.stderr)
