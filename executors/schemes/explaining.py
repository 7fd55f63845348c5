"""What a scheme became: the path of its products, its generated source, and what the rewriting changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels import cache, factory
from ...kernels.schemes.probe import probe
from ...kernels.schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from ...primitives.errors import KernelNotFound

if TYPE_CHECKING:
    from .scheme import Scheme

PATHS = {
    "affine": "integers times a scale: int8 products run on the integer micro-kernel, others decode while packing",
    "offset": "integers times a scale plus an offset: as affine, with the offset times the row sums of the activations",
    "table": "a value for each code times a scale: looked up by a byte shuffle where there are 16 or fewer",
    "scaled": "as a table, where the numbers that the weights' own parameters stand for are exact; else decoded on the way",
    "other": "decoded while the weights are packed: f32 and bf16 products read the codes, int8 ones are refused",
}
BEFORE = "decoded when a plan is made, which then holds the weights as floats; the tensor itself stays packed"


def path(scheme: Scheme, kind: str) -> str:
    """What products do with the codes: products.weights_of decides the same."""
    whole = scheme.grouped is None and (scheme.decode is None or scheme.vector > 1 or scheme.bits > 8)
    if not whole and kind in ("other", "scaled") and scheme.block == "tensor" and not scheme.decode_takes_index:
        return PATHS["table"]  # one block has one table, whatever decode is
    if whole or (kind == "other" and scheme.grouped is None and any(p.table for p in scheme.stored)):
        return BEFORE
    return PATHS[kind]


def explain(scheme: Scheme) -> str:
    """The path that products take and why, the functions' notes, and where compiled code is kept."""
    found = probe(scheme)
    kind, why = (found.kind, found.why) if scheme.grouped is None else (scheme.grouped.kind, "groups of integers")
    lines = [
        repr(scheme),
        f"  products   {kind}: {why}",
        f"             {path(scheme, kind)}",
        f"  digest     {scheme.digest}",
        f"  cache      {cache.folder()}",
    ]
    for role in ("fit", "encode", "decode"):
        captured = getattr(scheme, f"captured_{role}") if role != "encode" or scheme.encodes else None
        if captured is None:
            continue
        lines.append(f"  {role:10} {captured.name}({', '.join(captured.parameters)})")
        lines += [f"             {note}" for note in captured.lint]
    return "\n".join(lines)


def kernels(scheme: Scheme, backend: str) -> dict[str, str]:
    """Generated source by step. Raises KernelNotFound for a backend that has none for schemes."""
    steps: list[Any] = [*([SchemeEncode(scheme)] if scheme.encodes else []), SchemeDecode(scheme, 1)]
    if scheme.params:
        steps.insert(0, SchemeQuantize(scheme) if scheme.edges[0] == 1 and not scheme.nested else SchemeFit(scheme))
    found = {}
    for step in steps:
        count = len(step.signature())
        built = factory.get(step.name, backend, kernel=step, dtypes=("",) * count, ranks=(2,) * count, isa=None)
        tile = getattr(built, "tile", built)
        source = getattr(tile, "source", None)
        if source is None:
            raise KernelNotFound(f"backend {backend!r} runs {step.name} as Python, with no source of its own")
        found[step.name] = source
    return found
