"""A CUDA graph as Mermaid text and as an SVG picture."""

from __future__ import annotations

from ...primitives.drawing import quoted
from ...primitives.svg import draw
from .graph import Graph, Node

KERNEL, ONCE, HOST = "#fef3c7", "#e2e8f0", "#fecaca"


def mermaid(graph: Graph) -> str:
    """A flowchart: kernels are boxes, what runs once is rounded, steps of the host are hexagons."""
    lines = ["flowchart TD"]
    for node in graph:
        left, right = ("{{", "}}") if node.on_host else ("([", "])") if node.once else ("[", "]")
        lines.append(f"  n{node.number}{left}{quoted(f'{node.name}: {how(node)}')}{right}")
        lines += [f"  n{before} --> n{node.number}" for before in node.after]
    return "\n".join(lines)


def svg(graph: Graph, title: str) -> str:
    """Nodes in rows by what they wait for; kernels yellow, what runs once grey, steps of the host red."""
    boxes: dict[str, tuple[int, str, str, str]] = {}
    level: list[int] = []
    for node in graph:
        level.append(max((level[n] + 1 for n in node.after), default=0))
        colour = HOST if node.on_host else ONCE if node.once else KERNEL
        boxes[str(node.number)] = (level[-1], node.name, size_of(node), colour)
    return draw(title, boxes, [(str(before), str(node.number)) for node in graph for before in node.after])


def how(node: Node) -> str:
    """Kernel, grid and block of a node, or why the host runs it."""
    if node.launch is None:
        return f"on the host, {node.reason}"
    return f"{node.launch.name}{' once,' if node.once else ''} {size_of(node)}"


def size_of(node: Node) -> str:
    """Grid and block of a node."""
    if node.launch is None:
        return "on the host"
    return f"grid {' x '.join(str(size) for size in node.launch.grid)}, {node.launch.threads} threads"
