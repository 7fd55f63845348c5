"""A pipeline as text, Mermaid and HTML."""

from __future__ import annotations

import html as markup
from typing import TYPE_CHECKING

from .sizes import show

if TYPE_CHECKING:
    from .pipeline import Pipeline, Value


def text(pipe: Pipeline) -> str:
    """One line per value that comes in, per step and per output."""
    lines = [f"Pipeline {pipe.name!r}: {len(pipe.steps)} steps"]
    for value in pipe.values.values():
        if value.kind != "result":
            lines.append(f"  {value.kind:9} {_typed(value)}")
    for step in pipe.order():
        results = ", ".join(_typed(v) for v in step.outputs.values())
        reads = ", ".join(f"{slot}={value.name}" for slot, value in step.inputs.items())
        lines.append(f"  step      {results} = {step.name}({reads})")
    lines += [f"  update    {name} <- {value.name}" for name, value in pipe.updates.items()]
    lines += [f"  output    {name} = {value.name}" for name, value in pipe.outputs.items()]
    return "\n".join(lines)


def mermaid(pipe: Pipeline) -> str:
    """A flowchart; inputs are rounded, constants boxes, steps double-edged. Types are on the edges, and updates dotted."""
    ids: dict[int, str] = {}
    lines = ["flowchart TD"]
    for value in pipe.values.values():
        if value.kind != "result" and value.producer is None:
            ids[id(value)] = f"v{len(ids)}"
            left, right = ("[", "]") if value.kind == "constant" else ("([", "])")
            lines.append(f"  {ids[id(value)]}{left}{quoted(value.name)}{right}")
    steps = {id(step): f"s{n}" for n, step in enumerate(pipe.steps)}

    def source(value: Value) -> str:
        return steps[id(value.producer[0])] if value.producer else ids[id(value)]

    for step in pipe.order():
        lines.append(f"  {steps[id(step)]}[[{quoted(step.name)}]]")
        for slot, value in step.inputs.items():
            label = quoted(f"{slot}: {value.dtype or 'function'} {show(value.shape)}")
            lines.append(f"  {source(value)} -->|{label}| {steps[id(step)]}")
        for slot, value in step.outputs.items():
            if value.kind == "state":
                lines.append(f"  {steps[id(step)]} -.->|{quoted(slot)}| {ids[id(value)]}")
    for n, (name, value) in enumerate(pipe.outputs.items()):
        lines.append(f"  o{n}([{quoted(name)}])")
        lines.append(f"  {source(value)} -->|{quoted(f'{value.dtype} {show(value.shape)}')}| o{n}")
    for name, value in pipe.updates.items():
        lines.append(f"  {source(value)} -.->|{quoted('update')}| {ids[id(pipe.values[name])]}")
    return "\n".join(lines)


def html(pipe: Pipeline) -> str:
    """A table of the steps, for notebooks."""
    rows = "".join(
        f"<tr><td>{markup.escape(step.name)}</td>"
        f"<td>{'<br>'.join(markup.escape(f'{slot} = {_typed(v)}') for slot, v in step.inputs.items())}</td>"
        f"<td>{'<br>'.join(markup.escape(_typed(v)) for v in step.outputs.values())}</td></tr>"
        for step in pipe.order()
    )
    outputs = ", ".join(markup.escape(f"{name} = {value.name}") for name, value in pipe.outputs.items())
    return (
        f"<table><caption>Pipeline {markup.escape(pipe.name)}; outputs: {outputs or 'none'}</caption>"
        f"<thead><tr><th>step</th><th>reads</th><th>writes</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _typed(value: Value) -> str:
    axes = f" {value.axes}" if value.axes else ""
    return f"{value.name}: {value.dtype or 'function'} {show(value.shape)}{axes}"


def quoted(label: str) -> str:
    return '"' + label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") + '"'
