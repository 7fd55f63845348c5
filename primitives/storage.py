"""A pipeline in one file: an npz archive with the graph as JSON and every array as bytes.

A file never runs code. A step is stored as the name of a registered kernel class and its plain fields; loading looks
the name up among the classes that are registered, then among all of this package's and those that installed packages
announce under the entry point group `tilework.steps`. A user's function is stored only when asked, as source, and made
again only when asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import dtypes, written
from .archives import Clamped, array, check_stored, length_of, member
from .errors import ArgumentError, FileFormatError, PipelineError, TileworkError
from .pipeline import Pipeline, Value, initial_of
from .placing import placed
from .plugins import load_own_steps, load_steps
from .quantization import QuantParams
from .sizes import Size, size

FORMAT = 1
GRAPH = "pipeline.json"
LARGEST_GRAPH = 64 * 2**20  # bytes of JSON; larger is refused before it is read

_KERNELS: dict[str, type] = {}
T = TypeVar("T", bound=type)


def stored_as(name: str) -> Callable[[T], T]:
    """Class decorator: pipelines that hold this kernel, or this description in a field of one, can be saved.

    The class is a dataclass of plain fields.
    """

    def register(cls: T) -> T:
        if _KERNELS.get(name, cls).__qualname__ != cls.__qualname__:
            raise PipelineError(f"kernel class name {name!r} is taken by {_KERNELS[name].__qualname__}")
        _KERNELS[name] = cls
        cls._stored_as = name  # type: ignore[attr-defined]
        return cls

    return register


def _kernel_class(name: str) -> type:
    for load in (load_own_steps, load_steps):
        if name not in _KERNELS:
            load()
    if name not in _KERNELS:
        raise FileFormatError(
            f"the file has a step of kind {name!r}, which no package here defines; known: {', '.join(sorted(_KERNELS))}"
        )
    return _KERNELS[name]


class _Writer:
    def __init__(self, functions: str) -> None:
        self.functions = functions
        self.arrays: dict[str, Any] = {}
        self.inside: list[Any] = []  # functions that are being written

    def encode(self, x: Any, where: str) -> Any:
        if isinstance(x, np.generic):
            x = np.asarray(x)
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, dtypes.DType):
            return {"dtype": x.name}
        if isinstance(x, (tuple, list)):
            return {"tuple": [self.encode(v, where) for v in x]}
        if isinstance(x, dict):
            return {"dict": [[k, self.encode(v, where)] for k, v in x.items()]}
        if isinstance(x, np.ndarray):
            key = f"array_{len(self.arrays)}"
            self.arrays[key] = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
            return {"array": key, "type": dtypes.get(x.dtype).name, "shape": list(x.shape)}
        if isinstance(x, QuantParams):
            return {"quant": self.encode(x.to_dict(), where)}
        refer = getattr(x, "stored_reference", None)  # what other data stand for, a name for example
        reference = refer() if refer is not None else None
        if reference is not None:
            return self.encode(reference, where)
        kind = vars(type(x)).get("_stored_as")
        if kind is not None and dataclasses.is_dataclass(x):
            return {"object": kind, "fields": self.fields(x, where)}
        if callable(x):
            if self.functions != "source":
                raise PipelineError(
                    f"{where} holds the function {getattr(x, '__name__', x)!r}; "
                    f"save with functions='source' to keep its source"
                )
            return self.function(x, where)
        raise PipelineError(f"{where} holds {type(x).__name__} {x!r}, which a file cannot keep")

    def function(self, x: Any, where: str) -> dict[str, Any]:
        """A function's text and what that names."""
        source = written.text_of(x, where)
        if x in self.inside:
            raise PipelineError(
                f"{where} holds {x.__name__!r}, which calls itself by way of others; a file keeps no such"
            )
        self.inside.append(x)
        outside: dict[str, Any] = {}
        for name, found in written.outside_of(x, where).items():
            module = next((m for m, known in written.MODULES.items() if found is known), None)
            given = tuple(found) if isinstance(found, list) else found
            outside[name] = {"module": module} if module else self.encode(given, f"{where}, {x.__name__!r}")
        self.inside.pop()
        return {"function": x.__name__, "source": source, **({"outside": outside} if outside else {})}

    def fields(self, x: Any, where: str) -> dict[str, Any]:
        """The fields of a dataclass by which it is made."""
        return {
            f.name: self.encode(getattr(x, f.name), f"{where}, field {f.name!r}")
            for f in dataclasses.fields(x)
            if f.init
        }


class _Reader:
    def __init__(self, functions: str, arrays: Any) -> None:
        self.functions = functions
        self.arrays = arrays

    def decode(self, x: Any) -> Any:
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if "dtype" in x:
            return dtypes.get(x["dtype"])
        if "tuple" in x:
            return tuple(self.decode(v) for v in x["tuple"])
        if "dict" in x:
            return {k: self.decode(v) for k, v in x["dict"]}
        if "array" in x:
            return self.array(x)
        if "quant" in x:
            return QuantParams.from_dict(self.decode(x["quant"]))
        if "function" in x:
            return self.function(x)
        if "object" in x:
            made = _kernel_class(x["object"])(**{name: self.decode(v) for name, v in x["fields"].items()})
            return made.restored() if hasattr(made, "restored") else made
        raise FileFormatError(f"the graph holds {str(x)[:80]!r}, which this version does not know")

    def array(self, x: Any) -> Any:
        dtype = dtypes.get(x["type"])
        shape = tuple(int(n) for n in x["shape"])
        raw = self.arrays[x["array"]]
        count = 1
        for n in shape:
            count *= n
        if (
            raw.dtype != np.uint8
            or raw.ndim != 1
            or min(shape, default=0) < 0
            or raw.size != count * dtype.numpy.itemsize
        ):
            raise FileFormatError(f"array {x['array']!r} holds {raw.size} bytes; {dtype} {shape} needs another number")
        return raw.view(dtype.numpy).reshape(shape)

    def function(self, x: Any) -> Any:
        if self.functions != "run":
            raise FileFormatError(
                f"the file carries the source of function {x['function']!r}, which loading would run; "
                f"read it, then load with functions='run' if you trust it"
            )
        outside: dict[str, Any] = {}
        for name, found in x.get("outside", {}).items():
            if isinstance(found, dict) and "module" in found:
                outside[name] = written.MODULES[found["module"]]
            else:
                value = self.decode(found)
                outside[name] = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
        return written.made(x["function"], x["source"], outside)


def save(pipe: Pipeline, path: str | os.PathLike[str] | io.IOBase, functions: str = "refuse") -> None:
    """Write `pipe` to one file, which is there whole or not at all.

    functions   "refuse" (a pipeline with user functions is an error) or "source" (their source text is kept)

    Raises PipelineError for a kernel that was not registered with `stored_as`, or a field that a file cannot keep.
    """
    if functions not in ("refuse", "source"):
        raise ArgumentError(f"functions={functions!r}; 'refuse' or 'source'")
    writer = _Writer(functions)
    values = []
    for value in pipe.values.values():
        if value.kind != "result":
            values.append(_describe(value, writer))
    steps: list[dict[str, Any]] = []
    for step in pipe.steps:
        kind = vars(type(step.kernel)).get("_stored_as")  # not that of a base class, which knows less
        if kind is None or not dataclasses.is_dataclass(step.kernel):
            raise PipelineError(
                f"step {step.name!r} is a {type(step.kernel).__name__}, which cannot be saved; "
                f"make it a dataclass and register it with tilework.primitives.storage.stored_as"
            )
        fields = writer.fields(step.kernel, f"step {step.name!r}")
        steps.append(
            {
                "name": step.name,
                "kind": kind,
                "fields": fields,
                "inputs": {slot: v.name for slot, v in step.inputs.items()},
                "outputs": {slot: v.name for slot, v in step.outputs.items()},
                "quants": {
                    slot: writer.encode(v.quant, step.name) for slot, v in step.outputs.items() if v.quant is not None
                },
            }
        )
    graph = {
        "format": FORMAT,
        "name": pipe.name,
        "values": values,
        "steps": steps,
        "outputs": [[name, v.name] for name, v in pipe.outputs.items()],
        "updates": [[name, v.name] for name, v in pipe.updates.items()],
        "constraints": [[_plain(left), _plain(right), where] for left, right, where in pipe.constraints],
    }
    with contextlib.ExitStack() as stack:
        target = path if isinstance(path, io.IOBase) else stack.enter_context(placed(path))
        archive = stack.enter_context(zipfile.ZipFile(target, "w", zipfile.ZIP_STORED))  # type: ignore[call-overload]
        archive.writestr(member(GRAPH), json.dumps(graph, indent=1))
        for key, array in writer.arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, array, allow_pickle=False)
            archive.writestr(member(f"{key}.npy"), data.getvalue())


def _plain(x: int | Size) -> int | str:
    return x if isinstance(x, int) else str(x)


def _describe(value: Value, writer: _Writer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": value.name,
        "kind": value.kind,
        "dtype": value.dtype.name if value.dtype is not None else "function",
        "shape": [_plain(x) for x in value.shape],
        "axes": value.axes,
    }
    if value.quant is not None:
        found["quant"] = writer.encode(value.quant, value.name)
    if value.data is not None:
        found["data"] = writer.encode(value.data, f"{value.kind} {value.name!r}")
    return found


def load(path: str | os.PathLike[str] | io.IOBase, functions: str = "refuse") -> Pipeline:
    """Read a pipeline that `save` wrote; every edge is checked again.

    functions   "refuse" (a file with functions is an error) or "run" (their source is executed: trust the file)

    Raises FileFormatError for a file that is truncated, malformed, of another version, or with unknown steps.
    """
    if functions not in ("refuse", "run"):
        raise ArgumentError(f"functions={functions!r}; 'refuse' or 'run'")
    source = path if isinstance(path, io.IOBase) else os.fspath(path)
    try:
        with contextlib.ExitStack() as stack:
            opened = source if isinstance(source, io.IOBase) else stack.enter_context(Clamped(source))
            archive = stack.enter_context(zipfile.ZipFile(opened))  # type: ignore[arg-type]
            members = {info.filename: info for info in archive.infolist()}
            if GRAPH not in members:
                raise FileFormatError(f"{path}: no {GRAPH} inside; this is not a saved pipeline")
            if members[GRAPH].file_size > LARGEST_GRAPH:
                raise FileFormatError(f"{path}: the graph is {members[GRAPH].file_size} bytes; at most {LARGEST_GRAPH}")
            check_stored(archive, length_of(source), path)
            graph = json.loads(archive.read(GRAPH))
            arrays = {name[:-4]: _bytes(archive.read(name)) for name in members if name.endswith(".npy")}
        return _rebuild(graph, _Reader(functions, arrays))
    except FileFormatError:
        raise
    except TileworkError as error:
        raise FileFormatError(f"{path}: a pipeline that cannot be ({type(error).__name__}: {error})") from error
    except OSError as error:
        if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
            raise
        raise FileFormatError(f"{path}: {error}") from error
    except (
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        RecursionError,
        IndexError,
        OverflowError,
        ZeroDivisionError,
        AssertionError,
    ) as error:
        raise FileFormatError(
            f"{path}: not a saved pipeline, or a damaged one ({type(error).__name__}: {error})"
        ) from error
    except NotImplementedError as error:
        raise FileFormatError(f"{path}: {error}") from error


def _bytes(raw: bytes) -> Any:
    """The uint8 (n,) of a member. Its header decides nothing but where the bytes begin."""
    found = array(raw)
    if found.dtype != np.uint8 or found.ndim != 1:
        raise FileFormatError(f"an array of {found.dtype} {found.shape}; bytes are written")
    return found


def _rebuild(graph: Any, reader: _Reader) -> Pipeline:
    if not isinstance(graph, dict) or graph.get("format") != FORMAT:
        found = graph.get("format") if isinstance(graph, dict) else type(graph).__name__
        raise FileFormatError(f"the graph has format {found!r}; this version reads {FORMAT}")
    pipe = Pipeline(str(graph["name"]))
    for item in graph["values"]:
        _rebuild_value(pipe, item, reader)
    for item in graph["steps"]:
        cls = _kernel_class(item["kind"])
        kernel = cls(**{name: reader.decode(x) for name, x in item["fields"].items()})
        declared = {v.name for v in pipe.values.values() if v.kind in ("buffer", "state")}
        operands = {slot: pipe.values[name] for slot, name in item["inputs"].items()}
        operands |= {slot: pipe.values[name] for slot, name in item["outputs"].items() if name in declared}
        written = pipe.add(kernel, step_name=item["name"], **operands)
        results = dict(zip(pipe.steps[-1].outputs, written if isinstance(written, tuple) else (written,), strict=False))
        for slot, x in item["quants"].items():
            results[slot].quant = reader.decode(x)
    for name, source in graph["outputs"]:
        pipe.output(name, pipe.values[source])
    for name, source in graph["updates"]:
        pipe.update(pipe.values[name], pipe.values[source])
    for left, right, where in graph["constraints"]:
        constraint = (size(left), size(right), str(where))
        if constraint not in pipe.constraints:
            pipe.constraints.append(constraint)
    return pipe


def _rebuild_value(pipe: Pipeline, item: Any, reader: _Reader) -> None:
    kind, name = item["kind"], item["name"]
    quant = reader.decode(item.get("quant"))
    shape = tuple(size(x) for x in item["shape"])
    if kind not in ("input", "argument", "constant", "state", "buffer"):
        raise FileFormatError(f"value {name!r} has kind {kind!r}")
    dtype = None if item["dtype"] == "function" else dtypes.get(item["dtype"])
    value = pipe._declare(name, dtype, shape, kind, item["axes"], quant)
    if "data" in item:
        data = reader.decode(item["data"])
        if kind == "constant" and dtype is not None:
            stored = (*shape[:-1], -(-shape[-1] // dtype.per_byte)) if shape else ()
            if not isinstance(data, np.ndarray) or data.shape != stored or data.dtype != dtype.numpy:
                raise FileFormatError(
                    f"constant {name!r} is {getattr(data, 'dtype', type(data).__name__)} "
                    f"{getattr(data, 'shape', '')}; {dtype} {shape} is said"
                )
            data = data.copy()
            data.setflags(write=False)
        elif kind == "constant":
            if not callable(data):
                raise FileFormatError(f"constant {name!r} is {type(data).__name__}; a function is said")
        elif kind == "state" and dtype is not None:
            data = initial_of(data, dtype, shape, f"state {name!r}")
        else:
            raise FileFormatError(f"{kind} {name!r} has data, which only constants and states have")
        value.data = data
    elif kind in ("constant", "state"):
        raise FileFormatError(f"{kind} {name!r} has no data")
