"""Models that were read before: a pipeline that is read from its file only when somebody looks into it.

What a model was read from says everything about its pipeline, so a plan that is kept under that name runs without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...executors.kept import files, naming
from ...executors.locks import Lock
from ...primitives.errors import FileFormatError
from ...primitives.pipeline import Pipeline

MARK = b"location"  # the key by which a model names a file beside it
PIECE = 2**20  # bytes that are read at a time
PARTS = frozenset(vars(Pipeline()))  # what a pipeline consists of
_making = Lock()


class Later(Pipeline):
    """The pipeline of a model that was read before, read again when its parts are asked for."""

    def __init__(self, identity: str, note: Mapping[str, Any], read: Callable[[], Pipeline]) -> None:
        self._identity = identity
        self.name = str(note["name"])
        fixed = note["shapes"]
        self._fixed = None if fixed is None else {str(name): tuple(map(int, shape)) for name, shape in fixed.items()}
        self._read = read
        self._made: Pipeline | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in PARTS or self.__dict__.get("_made") is not None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._make()
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        self._make()
        return {name: x for name, x in self.__dict__.items() if name != "_read"}

    def _make(self) -> Pipeline:
        with _making:
            if self._made is None:
                made = self._read()
                for value in made.values.values():
                    value.pipeline = self
                own = ("_identity", "_made_of")
                self.__dict__.update({name: x for name, x in vars(made).items() if name not in own})
                self._made_of = self._parts()
                self._made = made
            return self._made

    def _parts(self) -> tuple[Any, ...]:
        return () if "steps" not in self.__dict__ else super()._parts()

    def fixed_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """As `Pipeline.fixed_shapes`."""
        return super().fixed_shapes() if self._made is not None else self._fixed

    def for_inputs(self, inputs: Mapping[str, Any]) -> Pipeline:
        """As `Pipeline.for_inputs`."""
        made = self._make()
        found = made.for_inputs(inputs)
        return self if found is made else found


class Source:
    """A model file, and what makes its pipeline what it is.

    key  under which a note about it is kept; None where nothing is
    """

    def __init__(
        self, path: Path, data: bytes, shapes: Mapping[str, Iterable[Any]], values: Mapping[str, np.ndarray[Any, Any]]
    ) -> None:
        self.folder = path.resolve().parent
        self.data = data
        self.key: str | None = None
        if files.limit():
            given = [(name, str(x.dtype), x.shape, x.tobytes().hex()) for name, x in sorted(values.items())]
            asked = [(name, [str(n) for n in shape]) for name, shape in sorted(shapes.items())]
            content = hashlib.sha256(data).hexdigest()
            self.key = naming.digest("onnx", content, repr(asked), repr(given), _package())

    def later(self, read: Callable[[], Pipeline]) -> Later | None:
        """The pipeline, where the model was read before and the files beside it are as they were then."""
        content = None if self.key is None else files.read(f"{self.key}.model")
        if content is None:
            return None
        try:
            found = json.loads(bytes(content))
            beside = {str(name): str(was) for name, was in found["beside"].items()}
            if self._changed(beside):
                return None
            return Later(self._identity(beside), found, lambda: self._unchanged(beside, read))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            files.discard(f"{self.key}.model", f"{type(error).__name__}: {error}")
            return None

    def beside(self, proto: Any) -> dict[str, str | None]:
        """The hashes of the files beside the model that its tensors are in, before they are read."""
        if self.key is None or MARK not in self.data:
            return {}
        return {name: _hash(self.folder, name) for name in _locations(proto)}

    def remember(self, pipe: Pipeline, beside: Mapping[str, str | None]) -> None:
        """Note that the model can be read, and say in its pipeline what that was made from.

        beside   as before the files were read: nothing is noted where one has changed since
        """
        if self.key is None or any(was is None for was in beside.values()) or self._changed(beside):
            return
        fixed = pipe.fixed_shapes()
        note = {"name": pipe.name, "shapes": fixed, "beside": beside}
        if files.write(f"{self.key}.model", json.dumps(note).encode()):
            pipe.identity = self._identity(beside)

    def _changed(self, beside: Mapping[str, str | None]) -> list[str]:
        return [name for name, was in beside.items() if _hash(self.folder, name) != was]

    def _unchanged(self, beside: Mapping[str, str], read: Callable[[], Pipeline]) -> Pipeline:
        self._check(beside)  # before, so that nothing is said of what another model's files lack
        made = read()
        self._check(beside)
        return made

    def _check(self, beside: Mapping[str, str]) -> None:
        for name in self._changed(beside):
            raise FileFormatError(f"{name!r} has changed since the model was loaded; load the model again")

    def _identity(self, beside: Mapping[str, str | None]) -> str:
        return f"{self.key} {json.dumps(dict(sorted(beside.items())))}"


def _hash(folder: Path, location: str) -> str | None:
    """The hash of a file beside the model; None where none can be read, or it is too large for a plan to be kept."""
    digest = hashlib.sha256()
    try:
        path = (folder / location).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            return None
        if path.stat().st_size > files.limit() // files.LARGEST:
            return None
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except (OSError, ValueError, RuntimeError):  # no name of a file, nothing that may be read, links in a circle
        return None
    return digest.hexdigest()


def _locations(message: Any) -> set[str]:
    """The names of the files that the tensors of a model are in."""
    found: set[str] = set()
    for field, value in message.ListFields():
        if field.name == "external_data":
            found |= {entry.value for entry in value if entry.key == MARK.decode()}
        elif field.type == field.TYPE_MESSAGE:
            for part in value if isinstance(value, Iterable) else (value,):
                found |= _locations(part)
    return found


def _package() -> str:
    """The state of the onnx package, which reads tensors and expands functions."""
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        return ""
    stat = os.stat(spec.origin)
    return f"{spec.origin} {stat.st_size} {stat.st_mtime_ns}"
