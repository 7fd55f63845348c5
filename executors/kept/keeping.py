"""Keeping a plan that was just laid out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...kernels import crew as crew_code
from ...kernels import forge
from ...kernels.machine_code import own_symbols
from ...primitives.pipeline import Value
from .. import launcher
from ..addresses import Addresses
from ..program import FIRST_EXTERNAL, serial_address, team_address, worker_address
from . import files, naming
from .image import ENTRY, CannotKeep, Taking
from .record import Facts, Port, Record

if TYPE_CHECKING:
    from ..bound import Bound
    from ..plan import TilingPlan

log = logging.getLogger("tilework")
MOST = 8  # sets of sizes that one plan is kept at


def keep(plan: TilingPlan, bound: Bound, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Keep a plan at these shapes; False where that cannot be, or something is there already.

    Only plans of one native program without states are kept, whose arrays may lie anywhere, and which are what a plan made
    for these shapes alone would be.
    """
    identity = plan.pipe.identity
    packed = any(v.dtype is None or v.dtype.per_byte > 1 for v in (*plan._wanted.values(), *plan._outputs.values()))
    if identity is None or packed or plan.tap or plan.kept >= MOST or not bound.fast or not _made_for(plan, bound):
        return False
    name = naming.of_run(identity, plan.executor, shapes)
    if name is None or files.exists(name):
        return False
    try:
        content = _record(plan, bound).dumps()
    except CannotKeep as reason:
        log.debug("the plan of %r is not kept: %s", plan.pipe.name, reason)
        return False
    plan.kept += 1
    return files.write(name, content)


def _made_for(plan: TilingPlan, bound: Bound) -> bool:
    """Whether a plan knew all run-time sizes when it was made: what is tuned for them may have decided its kernels."""
    return all(plan.tiles.sizes.get(name) == n for name, n in bound.binding.env.items())


def _record(plan: TilingPlan, bound: Bound) -> Record:
    binding, constants = bound.binding, [a for a in plan.binder.constants.values() if isinstance(a, np.ndarray)]
    taking = Taking(Addresses(constants))
    image = taking.take(bound.program)
    entries = _with(taking.entries, [*(table.entry for table in taking.tables), *_runtime(binding.parallel)])
    base = {name: FIRST_EXTERNAL + n for n, name in enumerate(binding.externals)}

    def port(name: str, value: Value) -> Port:
        assert value.dtype is not None
        in_place = tuple(sorted(plan._in_place.get(name, ()))) if value.kind == "result" else ()
        shape = binding.placed[value.name].shape
        return Port(name, value.name, value.dtype.name, shape, value.kind, base[value.name], in_place)

    facts = Facts(
        inputs=tuple(port(name, value) for name, value in plan._wanted.items()),
        outputs=tuple(port(name, value) for name, value in plan._outputs.items()),
        externals=binding.externals,
        bases=binding.bases,
        arena_bytes=binding.arena_bytes,
        local_bytes=binding.local_bytes,
        align=plan.binder.align,
        parallel=binding.parallel,
        cost=bound.cost,
    )
    groups, order = _groups(entries)
    # The marks count entries as they were met; the groups have their own order.
    of_entries = image.marks[:, 1] == ENTRY
    image.marks[of_entries, 2] = [order[n] for n in image.marks[of_entries, 2].tolist()]
    at = {id(made): order[n] for n, made in enumerate(entries)}
    tables = [(at[id(table.entry)], len(table.words)) for table in taking.tables]
    return Record(facts, image, groups, tables, taking.constants)


def _with(entries: list[forge.Entry], more: list[forge.Entry]) -> list[forge.Entry]:
    """The entries, and those of `more` that are not among them."""
    return list({id(made): made for made in [*entries, *more]}.values())


def _runtime(parallel: bool) -> list[forge.Entry]:
    """What runs programs: the loops, the launcher, and the workers' own code."""
    launcher.load()
    addresses = [serial_address(), launcher.address()]
    if parallel:
        addresses += [worker_address(), team_address()]
        addresses.append(forge.entry(forge.Native(crew_code.SERVE, raw=True), 0, ()).address)
    known, _ = forge.known()
    if not known.keys() >= set(addresses):
        raise CannotKeep("what runs programs is not among the entries of this process")
    return [known[address] for address in addresses]


def _groups(entries: list[forge.Entry]) -> tuple[list[list[forge.Kept]], dict[int, int]]:
    """Groups of machine code in which no two objects define one name, and the place of each entry, counted over them."""
    groups: list[list[forge.Kept]] = []
    members: list[list[int]] = []
    taken: list[set[str]] = []
    for n, made in enumerate(entries):
        kept = forge.kept(made)
        own = own_symbols(kept.code.object) if kept is not None else None
        if kept is None or own is None:
            raise CannotKeep(f"the machine code of {made.key} is not in the kernel cache")
        at = next((i for i, names in enumerate(taken) if not names & own), len(groups))
        if at == len(groups):
            groups.append([])
            members.append([])
            taken.append(set())
        groups[at].append(kept)
        members[at].append(n)
        taken[at] |= own
    return groups, {n: place for place, n in enumerate(n for group in members for n in group)}
