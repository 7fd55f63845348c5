"""Which tile a step runs with: what the user asked for, else what was tuned for it on this machine, else its own choice."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..kernels import factory, tuning
from ..primitives.errors import ArgumentError
from ..primitives.kernel import index_space
from ..primitives.sizes import Size, substitute

log = logging.getLogger("tilework")

STAGE = "stage"  # in tile=: how many indices a stage of several steps takes at a time; 0: the step is in none


@dataclass(frozen=True)
class Tunable:
    """A step whose tile is open: what runs it, and what it is known by in the store.

    sizes   of the kernel; None where a run-time size was not known when the plan was made
    """

    steps: tuple[str, ...]
    variant: factory.Variant
    kernel: Any
    dtypes: tuple[str, ...]
    sizes: Mapping[str, int | None]
    threads: int

    @property
    def key(self) -> tuning.Key:
        source = tuning.source_of(self.variant.build)
        return tuning.Key(
            title(self.kernel), tuning.form_of(self.kernel), source, self.dtypes, dict(self.sizes), self.threads
        )

    def facts(self, tile: Mapping[str, int], isa: str | None) -> dict[str, Any]:
        """What the variant's tile model, and the values of its parameters, may ask for; an unknown size counts as 1."""
        sizes = {name: 1 if n is None else n for name, n in self.sizes.items()}
        return {"kernel": self.kernel, "sizes": sizes, "tile": tile, "isa": isa, "dtypes": self.dtypes}


class Tiles:
    """The tiles of one plan.

    given    {step: tile}: these are taken as they are
    sizes    run-time sizes that are known when the plan is made
    look     whether to look into the tuning store
    machine  under which name, where it is not the CPU's
    """

    def __init__(
        self,
        given: Mapping[str, Mapping[str, int]] | None = None,
        *,
        backend: str = "cpu",
        isa: str | None = None,
        threads: int = 1,
        sizes: Mapping[str, int] | None = None,
        look: bool = False,
        machine: str = "",
    ) -> None:
        self.given = {step: dict(tile) for step, tile in (given or {}).items()}
        self.found: dict[str, dict[str, int]] = {}
        self.notes: dict[str, str] = {}
        self.tunable: dict[str, Tunable] = {}
        self.sizes = dict(sizes or {})
        self.isa = isa
        self.threads = threads
        self.machine = machine or (machine_of(backend, isa) if look else "")

    def of(
        self,
        steps: Sequence[str],
        variant: factory.Variant,
        kernel: Any,
        dtypes: Sequence[str],
        sizes: Mapping[str, Any],
    ) -> dict[str, int]:
        """The tile of a step, or of several that became one; empty where the implementation is to choose.

        sizes   of the kernel, as numbers or as expressions of the plan's run-time sizes
        """
        step = Tunable(tuple(steps), variant, kernel, tuple(dtypes), numbers(sizes, self.sizes), self.threads)
        self.tunable[steps[0]] = step
        for name in steps:
            if name in self.given:
                return self.given[name]
        if not self.machine or not tuning.tuned(self.machine):
            return {}
        line = tuning.find(self.machine, step.key)
        if line is None:
            return {}
        tile = dict(line["tile"])
        if not tile:  # the implementation's own choice turned out to be the best
            return {}
        reason = self._refuses(step, tile)
        if reason:
            log.warning("the tuned tile of %s is not used: %s", step.key.kernel, reason)
            return {}
        self.found[steps[-1]] = tile
        where = tuning.bucket(line["sizes"])
        self.notes[steps[-1]] = f"tuned at {where}: " + ", ".join(f"{name} {n}" for name, n in tile.items())
        return tile

    def _refuses(self, step: Tunable, tile: Mapping[str, int]) -> str:
        """Why a tile of the store cannot be; empty if it can. A file that somebody edited must not stop a plan."""
        variant = step.variant
        space = index_space(step.kernel)
        axes = {axis.name for axis in space.axes} if space is not None else set()
        unknown = tile.keys() - variant.tile_params.keys() - axes - {STAGE}
        if unknown:
            return f"{variant.name}/{variant.variant} has no {', '.join(sorted(unknown))}"
        if any(n < 1 for name, n in tile.items() if name != STAGE):
            return "its values are not all positive"
        try:
            variant.work(step.facts(tile, self.isa))
        except ArgumentError as error:
            return str(error)
        return ""


def machine_of(backend: str, isa: str | None) -> str:
    """The name under which the store keeps what was measured on this machine with a backend."""
    name = tuning.cpu_machine(isa)
    return name if backend == "cpu" else f"{backend}-{name}"


def title(kernel: Any) -> str:
    """What a kernel computes, with the steps that are fused into it."""
    return str(getattr(kernel, "title", kernel.name))


def numbers(sizes: Mapping[str, Any], env: Mapping[str, int]) -> dict[str, int | None]:
    """A kernel's sizes as numbers, None where a run-time size is not known yet."""
    found: dict[str, int | None] = {}
    for name, x in sizes.items():
        if name == "...":
            continue
        known = substitute(x, env) if isinstance(x, Size) else x
        found[name] = known if isinstance(known, int) else None
    return found
