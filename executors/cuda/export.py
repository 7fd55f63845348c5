"""CudaPlan.export(folder): the PTX of every kernel that a plan launches, its constants, and what to launch with what."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.cuda import compile
from ...primitives.errors import Unsupported
from .graph import Graph, Node, Place

if TYPE_CHECKING:
    from .plan import CudaPlan

VERSION = 1


def export(
    plan: CudaPlan,
    folder: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    name: str | None = None,
    cc: tuple[int, int] = (8, 0),
) -> Path:
    """Write NAME.json, NAME.bin and a .ptx file for each kernel; returns the path of NAME.json.

    shapes  {input: shape}: the sizes that it is exported for; left out where they are fixed
    cc      the architecture, which later ones run too

    NAME.json lists buffers (name, kind, bytes, and where a constant's content begins in NAME.bin) and nodes: kernel, grid,
    block, arguments ([buffer, offset] or a number, in the order of the kernel's parameters), the nodes that must have
    finished, and whether it computes from constants alone, so that once is enough. Any program that can load PTX can run
    the plan by it.

    Raises Unsupported where a step has no CUDA kernel, or the compiler is missing.
    """
    target, name = Path(folder), name or plan.source.name
    graph = plan.graph(dict(shapes or {}))
    hosted = {node.name: node.reason for node in graph if node.on_host}
    if hosted:
        steps = "; ".join(f"{step}: {why}" for step, why in hosted.items())
        raise Unsupported(f"these steps have no CUDA kernel and cannot be exported: {steps}")
    target.mkdir(parents=True, exist_ok=True)
    files: dict[Any, tuple[str, str]] = {}
    nodes = [_node(node, name, cc, target, files) for node in graph]
    content = b""
    buffers: list[dict[str, Any]] = []
    for buffer in graph.buffers:
        entry: dict[str, Any] = {"name": buffer.name, "kind": buffer.kind, "bytes": buffer.nbytes}
        if buffer.data is not None:
            content += b"\0" * (-len(content) % graph.align)
            entry["at"] = len(content)
            content += buffer.data.tobytes()
        buffers.append(entry)
    (target / f"{name}.bin").write_bytes(content)
    facts = {
        "version": VERSION,
        "pipeline": plan.source.name,
        "cc": list(cc),
        "align": graph.align,
        "buffers": buffers,
        "outputs": {label: _held(plan, graph, value.name) for label, value in plan.pipe.outputs.items()},
        "nodes": nodes,
    }
    path = target / f"{name}.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return path


def _node(
    node: Node, name: str, cc: tuple[int, int], target: Path, files: dict[Any, tuple[str, str]]
) -> dict[str, Any]:
    launch = node.launch
    assert launch is not None
    key = (launch.kernel, launch.parameters, launch.threads)
    if key not in files:
        text = compile.to_ptx(launch.kernel, launch.parameters, cc, launch.threads)
        file = f"{name}_{len(files)}_{launch.name}.ptx"
        (target / file).write_text(text, encoding="utf-8")
        files[key] = file, compile.entry_of(text)
    file, entry = files[key]
    return {
        "step": node.name,
        "file": file,
        "entry": entry,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "parameters": list(launch.parameters),
        "arguments": [[arg.buffer, arg.offset] if isinstance(arg, Place) else int(arg) for arg in node.args],
        "after": list(node.after),
        "once": node.once,
        "status": node.status,
    }


def _held(plan: CudaPlan, graph: Graph, name: str) -> str:
    """The buffer of an output; Unsupported for one that no step writes."""
    if not graph.has(name):
        raise Unsupported(f"output {name!r} of {plan.source.name!r} has no buffer of its own and cannot be exported")
    return name
