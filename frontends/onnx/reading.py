"""From a path, bytes or a ModelProto to a model whose graph is safe to walk: nothing in the file is trusted.

A file that somebody else wrote may be truncated, may claim tensors of 2**40 elements, may name data outside its own
folder, and may have no order in which its nodes can run. All of that is found here or in `tensors`, before memory is
taken for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...primitives.errors import ArgumentError, FileFormatError, Unsupported

DEFAULT = ""  # the name that the ONNX domain goes by in this package
OLDEST, NEWEST = 7, 28
LARGEST_FILE = 1 << 31  # protobuf's own limit for one message


@dataclass(frozen=True)
class Model:
    """A parsed model, the version of each operator set, and the folder that its external data may lie in.

    layers   what nodes of the domain "tilework" stand for (quantizing/); no file has any
    states   of the files of that folder that tensors were read from
    """

    proto: Any
    opsets: Mapping[str, int]
    folder: Path | None
    name: str
    layers: tuple[Any, ...] = ()
    states: dict[str, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)


def package() -> Any:
    """The onnx package; ArgumentError names the extra that brings it."""
    try:
        import onnx
    except ImportError as error:
        raise ArgumentError(f"reading ONNX needs the package onnx ({error}); pip install 'tilework[onnx]'") from None
    return onnx


def read(source: Any, path: Path | None = None) -> Model:
    """Return the model that a path, bytes or a ModelProto holds.

    path  where bytes are from, if they are from a file

    Raises ArgumentError where there is no such file, FileFormatError where it is no ONNX model, Unsupported where its
    operator set is older or newer than what is read.
    """
    onnx = package()
    folder, name = None, "the model"
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            data = file_bytes(path)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
        else:
            raise ArgumentError(f"{type(source).__name__} is no ONNX model; give a path, bytes or a ModelProto")
        if path is not None:
            folder, name = path.resolve().parent, path.name
        proto = _parse(onnx, data, name)
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise FileFormatError(f"{name} is no ONNX model: it holds no graph")
    return Model(proto, _opsets(proto.opset_import, name), folder, name)


def file_bytes(path: Path) -> bytes:
    """The bytes of a file; ArgumentError where there is none, FileFormatError where it is too large for a model."""
    if not path.is_file():
        raise ArgumentError(f"there is no file {str(path)!r}")
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise FileFormatError(f"{path.name} has {size} bytes; a model file has at most {LARGEST_FILE}")
    return path.read_bytes()


def _parse(onnx: Any, data: bytes, name: str) -> Any:
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is no ONNX model, or is truncated: {error}") from None
    _check_text(proto, name)
    return proto


def _check_text(message: Any, where: str) -> None:
    """FileFormatError for a text that is not UTF-8: protobuf hands it out as bytes, which are no name."""
    for each, value in message.ListFields():
        repeated = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        if each.type == each.TYPE_MESSAGE:
            for part in value if repeated else (value,):
                _check_text(part, where)
        elif each.type == each.TYPE_STRING:
            for text in value if repeated else (value,):
                if not isinstance(text, str):
                    raise FileFormatError(f"{where}: {each.full_name} is not UTF-8: {bytes(text[:40])!r}")


def _opsets(imports: Iterable[Any], name: str) -> dict[str, int]:
    found = {"" if entry.domain == "ai.onnx" else entry.domain: int(entry.version) for entry in imports}
    if not found:
        raise FileFormatError(f"{name} names no operator set; an ONNX model imports at least one")
    version = found.setdefault(DEFAULT, NEWEST)
    if not 1 <= version <= NEWEST:
        raise Unsupported(f"{name} is written for operator set {version}; {OLDEST} to {NEWEST} are read")
    return found


def topological(nodes: Iterable[Any], known: Iterable[str], where: str) -> list[Any]:
    """The nodes in an order in which each comes after what it reads.

    known   names that are there before any node: inputs, initializers, and those of the graphs around this one

    Raises FileFormatError for a name that nothing writes, one that two write, and nodes that wait for each other.
    """
    nodes = list(nodes)
    written: dict[str, int] = {}
    known = set(known)
    for n, node in enumerate(nodes):
        for output in node.output:
            if output and (output in written or output in known):
                raise FileFormatError(f"{where}: {label(node)} writes {output!r}, which is already written")
            if output:
                written[output] = n
    needs: list[set[int]] = []
    readers: dict[int, list[int]] = {}
    for n, node in enumerate(nodes):
        before = set()
        for name in reads(node):
            if name in written:
                before.add(written[name])
            elif name not in known:
                raise FileFormatError(f"{where}: {label(node)} reads {name!r}, which nothing writes")
        needs.append(before)
        for m in before:
            readers.setdefault(m, []).append(n)
    ready = [n for n, before in enumerate(needs) if not before]
    order = []
    while ready:
        n = ready.pop(0)
        order.append(nodes[n])
        for m in readers.get(n, ()):
            needs[m].discard(n)
            if not needs[m]:
                ready.append(m)
    if len(order) < len(nodes):
        stuck = [label(nodes[n]) for n, before in enumerate(needs) if before]
        raise FileFormatError(f"{where}: nodes wait for each other: {', '.join(stuck[:4])}")
    return order


def reads(node: Any) -> list[str]:
    """The names that a node reads, those that its subgraphs take from outside among them."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in [*graphs, *attribute.graphs]:
            inside = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            inside |= {name for inner in graph.node for name in inner.output}
            outer = {name for inner in graph.node for name in reads(inner)}
            outer |= {v.name for v in graph.output}
            found += sorted(outer - inside)
    return found


def label(node: Any) -> str:
    """How a node is named in an error: its operator, and its own name where it has one."""
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    own = f" {node.name!r}" if node.name else f" (writes {node.output[0]!r})" if node.output else ""
    return f"{domain}{node.op_type}{own}"
