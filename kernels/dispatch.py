"""The native loop that runs a program. It knows entries, blocks, ranges and tiles, and no kernel.

A program is stages one after another. A stage is `tiles` independent pieces, and each piece is `rows` entries run in
order (one, or a chain whose intermediates are a tile in the worker's own memory). Any number of workers may run the
same program at once: tiles are handed out by an atomic counter, and the next stage begins when the last tile of this
one is done. A worker waits only for tiles that another running worker has taken, so workers that never start, or
start late, cost time and nothing else.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

PACKAGE = __package__.rsplit(".", 1)[0]

# Words of one stage: tiles, first row, rows, first fix, fixes, spread (1: each tile has rows of its own, one after the
# other in the table: steps that do not depend on each other), weight (what a tile costs, about bytes moved).
STAGE = 7
# Words of one row: entry, block, ranges, bytes from one tile's ranges to the next.
ROW = 4
# Words of one fix: base to set, offset in the worker's memory, address of one displacement per tile.
FIX = 3
# Words of a run's progress per stage, a cache line apart: [0] next tile, [8] tiles done.
PROGRESS = 16
# Words of a run's head: [0] stop, [1] status (0: only paused, for Python's signals), [2] row, [3] tile; a cache line.
HEAD = 8
EVENTS, EVENT = 6, 5  # of the head: where events go, and how many there are; of an event: row, tile, worker, from, to
# Words of a program's header: stages, stage table, row table, fix table, worker memory's base.
HEADER = 5

SPINS = 4000  # turns of a waiting loop, about 50 us, before the processor is given up
# Reading the counter takes as long as walking to two entries, so it is read once in so much weight, and at least once in
# so many tiles, whatever they say that they cost.
LOOK, MOST_TILES = 2**20, 64
TICKS = 2**27  # processor ticks between looks at Python's signals: about 50 ms at 2.6 GHz


@intrinsic
def add_atomic(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address, and return what was there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_atomic(typingctx: Any, address: Any) -> Any:
    """The int64 at an address, as other threads last wrote it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def load(typingctx: Any, address: Any, index: Any) -> Any:
    """Word `index` of the int64 array at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(pointer, [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Set word `index` of the int64 array at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(args[2], builder.gep(pointer, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def address_of(typingctx: Any, pointer: Any) -> Any:
    """A C pointer as an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), codegen


@intrinsic
def call_object(typingctx: Any, address: Any, argument: Any) -> Any:
    """Call the C function at an address with one word; returns a word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        return builder.call(builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer()), [args[1]])

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def relax(typingctx: Any) -> Any:
    """Tell the processor that this is a waiting loop."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "x86" in context.codegen()._tm.triple:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def yield_processor(typingctx: Any) -> Any:
    """Let another thread have the processor, where the C library has POSIX's call for it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def ticks(typingctx: Any) -> Any:
    """The processor's time-stamp counter; 0 where user code may not read one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "x86" not in context.codegen()._tm.triple:
            return ir.Constant(ir.IntType(64), 0)
        return builder.call(
            builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(ir.IntType(64), [])), []
        )

    return types.int64(), codegen


# worker(bases, program, progress): bases is this worker's own table. Returns when the program is done or stopped.
# A traced one notes every entry that it calls: EVENT words each, at the address in word EVENTS of the head, counted in
# word EVENTS + 1.
def worker(traced: bool = False) -> str:
    """Source of the worker's loop."""
    before = after = ""
    if traced:
        before = "\n                began = ticks()"
        after = f"""
                event = load(head, {EVENTS}) + {8 * EVENT} * add_atomic(head + {8 * EVENTS + 8}, 1)
                store(event, 0, n)
                store(event, 1, tile)
                store(event, 2, address_of(bases))
                store(event, 3, began)
                store(event, 4, ticks())"""
    return _WORKER.replace("# before", before).replace("# after", after)


_WORKER = f"""
from numba import types
from {PACKAGE}.kernels.dispatch import add_atomic, address_of, load, load_atomic, relax, store, ticks, yield_processor
from {PACKAGE}.kernels.entry import call_entry


def entry(bases, program, progress):
    start = spent = 0
    head = address_of(progress)
    stages, stage_table, row_table, fix_table, local = program[0], program[1], program[2], program[3], program[4]
    for stage in range(stages):
        at = stage_table + {8 * STAGE} * stage
        tiles, first_row, rows, first_fix, fixes = load(at, 0), load(at, 1), load(at, 2), load(at, 3), load(at, 4)
        spread, weight = rows * load(at, 5), load(at, 6)
        counter = head + {8 * HEAD} + {8 * PROGRESS} * stage
        while True:
            if load_atomic(head) != 0:
                return types.int32(load_atomic(head))
            if load_atomic(counter) >= tiles:
                break
            tile = add_atomic(counter, 1)
            if tile >= tiles:
                break
            for n in range(first_fix, first_fix + fixes):
                fix = fix_table + {8 * FIX} * n
                bases[load(fix, 0)] = bases[local] + load(fix, 1) - load(load(fix, 2), tile)
            row_of_tile = first_row + tile * spread
            for n in range(row_of_tile, row_of_tile + rows):# before
                row = row_table + {8 * ROW} * n
                status = call_entry(load(row, 0), bases, load(row, 1), load(row, 2) + tile * load(row, 3))# after
                if status != 0:
                    store(head, 1, status)
                    store(head, 2, n)
                    store(head, 3, tile)
                    store(head, 0, 1)
                    return types.int32(1)
            add_atomic(counter + 64, 1)
            spent += weight
            if spent > {LOOK}:
                now, spent = ticks(), 0
                start = now if start == 0 else start
                if now - start > {TICKS}:
                    store(head, 0, 1)
        spins = 0
        while load_atomic(counter + 64) < tiles:
            if load_atomic(head) != 0:
                return types.int32(load_atomic(head))
            relax()
            spins += 1
            if spins > {SPINS}:
                yield_processor()  # the worker we wait for may be waiting for this very processor
    return types.int32(0)
"""

# serial(bases, program, progress): the same on one thread, without atomic operations. Where it stops is kept in words
# 4 (stage) and 5 (tile) of the head, which are 0 again when it is done: nothing has to be cleared between runs.
SERIAL = f"""
from numba import types
from {PACKAGE}.kernels.dispatch import address_of, load, store, ticks
from {PACKAGE}.kernels.entry import call_entry


def entry(bases, program, progress):
    start = spent = 0
    head = address_of(progress)
    stages, stage_table, row_table, fix_table, local = program[0], program[1], program[2], program[3], program[4]
    first_tile = load(head, 5)
    for stage in range(load(head, 4), stages):
        at = stage_table + {8 * STAGE} * stage
        tiles, first_row, rows, first_fix, fixes = load(at, 0), load(at, 1), load(at, 2), load(at, 3), load(at, 4)
        spread, weight = rows * load(at, 5), load(at, 6)
        if tiles == 1 and rows == 1 and fixes == 0:  # a whole kernel: the loops below cost as much as walking here
            row = row_table + {8 * ROW} * first_row
            status = call_entry(load(row, 0), bases, load(row, 1), load(row, 2))
            if status != 0:
                store(head, 1, status)
                store(head, 2, first_row)
                store(head, 3, 0)
                store(head, 4, 0)
                return types.int32(1)
            spent += weight
            if spent > {LOOK}:
                now, spent = ticks(), 0
                start = now if start == 0 else start
                if now - start > {TICKS}:
                    store(head, 4, stage + 1)
                    store(head, 5, 0)
                    return types.int32(1)
            continue
        for tile in range(first_tile, tiles):
            for n in range(first_fix, first_fix + fixes):
                fix = fix_table + {8 * FIX} * n
                bases[load(fix, 0)] = bases[local] + load(fix, 1) - load(load(fix, 2), tile)
            row_of_tile = first_row + tile * spread
            for n in range(row_of_tile, row_of_tile + rows):
                row = row_table + {8 * ROW} * n
                status = call_entry(load(row, 0), bases, load(row, 1), load(row, 2) + tile * load(row, 3))
                if status != 0:
                    store(head, 1, status)
                    store(head, 2, n)
                    store(head, 3, tile)
                    store(head, 4, 0)
                    store(head, 5, 0)
                    return types.int32(1)
            spent += weight
            if spent > {LOOK}:
                now, spent = ticks(), 0
                start = now if start == 0 else start
                if now - start > {TICKS}:
                    store(head, 4, stage)
                    store(head, 5, tile + 1)
                    return types.int32(1)
        first_tile = 0
    store(head, 4, 0)
    store(head, 5, 0)
    return types.int32(0)
"""

# Words of a launcher's block, which is the payload of a bytes object.
LAUNCHER = (
    "loop",  # address of the loop: serial, or team
    "first",  # its first argument: the bases, or the team
    "bases",
    "workers",  # how many tables of bases there are
    "pitch",  # words from one table to the next
    "clear",  # words of progress that a run begins with as zeros
    "program",
    "progress",
    "from_long",  # PyLong_FromLong
    "save_thread",  # PyEval_SaveThread, 0 to keep the GIL
    "restore_thread",
    "arrays",  # how many arrays a call takes; per array: base, descr, rank, writable, bytes, sizes, strides
    "array_type",  # numpy.ndarray
)
W = {name: n for n, name in enumerate(LAUNCHER)}
DONE, STOPPED, OTHERWISE = 0, 1, 2  # what a launcher returns; OTHERWISE: nothing ran, check the arrays in Python

# launch(self, args, nargs): a built-in function of Python, called with arrays. It checks that they are what the program
# was laid out for, enters their addresses and runs it: what costs microseconds in Python costs nanoseconds here.
LAUNCH = f"""
from numba import njit
from {PACKAGE}.kernels.dispatch import call_object, load, store
from {PACKAGE}.kernels.entry import call_entry_at

PAYLOAD = 32  # bytes from a bytes object to its content
DATA, RANK, SIZES, STRIDES, DESCR, FLAGS = 2, 3, 4, 5, 7, 8  # words of an array object
WRITEABLE, ALIGNED = 0x0400, 0x0100


@njit(error_model="numpy")
def accepted(block, args, count, kind, bases, workers, pitch):
    at = block + {8 * len(LAUNCHER)}
    for n in range(count):
        array = load(args, n)
        rank = load(at, 2)
        if load(array, 1) != kind or load(array, DESCR) != load(at, 1) or load(array, RANK) & 0xFFFFFFFF != rank:
            return False
        if not load(array, FLAGS) & ALIGNED or (load(at, 3) and not load(array, FLAGS) & WRITEABLE):
            return False
        sizes, strides = load(array, SIZES), load(array, STRIDES)
        for d in range(rank):
            if load(sizes, d) != load(at, 5 + d) or load(strides, d) != load(at, 5 + rank + d):
                return False
        data, last = load(array, DATA), load(array, DATA) + load(at, 4)
        if load(at, 3):
            other = block + {8 * len(LAUNCHER)}
            for m in range(count):
                if m != n and data < load(load(args, m), DATA) + load(other, 4) and load(load(args, m), DATA) < last:
                    return False
                other += 8 * (5 + 2 * load(other, 2))
        for worker in range(workers):
            store(bases, load(at, 0) + worker * pitch, data)
        at += 8 * (5 + 2 * rank)
    return True


def entry(me, args, nargs):
    block = me + PAYLOAD
    bases, progress, make = load(block, {W["bases"]}), load(block, {W["progress"]}), load(block, {W["from_long"]})
    if nargs != load(block, {W["arrays"]}):
        return call_object(make, {OTHERWISE})
    workers, pitch = load(block, {W["workers"]}), load(block, {W["pitch"]})
    if nargs and not accepted(block, args, nargs, load(block, {W["array_type"]}), bases, workers, pitch):
        return call_object(make, {OTHERWISE})
    save, state = load(block, {W["save_thread"]}), 0
    if save:
        state = call_object(save, 0)
    for n in range(load(block, {W["clear"]})):
        store(progress, n, 0)
    status = call_entry_at(load(block, {W["loop"]}), load(block, {W["first"]}), load(block, {W["program"]}), progress)
    if save:
        call_object(load(block, {W["restore_thread"]}), state)
    return call_object(make, status)
"""

# team(bases, program, progress): ranges[0] workers at once, each with its own row of the bases table.
TEAM = f"""
from numba import prange, types
from {PACKAGE}.kernels.dispatch import address_of, load
from {PACKAGE}.kernels.entry import call_entry_at


def entry(team, program, progress):
    # team: workers, worker entry, address of the bases tables, bytes from one to the next
    workers, worker, tables, pitch = team[0], team[1], team[2], team[3]
    code, state = address_of(program), address_of(progress)
    for w in prange(workers):
        call_entry_at(worker, tables + w * pitch, code, state)
    return types.int32(load(state, 0))
"""


@lru_cache(maxsize=1)
def nothing() -> tuple[int, Any]:
    """Address of an entry that returns 0 at once, and what keeps it alive.

    It is a bare function: what a compiled kernel's entry does before and after its tile is the kernel's own time.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("define i32 @nothing(ptr %bases, ptr %block, ptr %ranges) { ret i32 0 }")
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return int(engine.get_function_address("nothing")), engine


# clock(target): the time-stamp counter.
CLOCK = f"""
from numba import types
from {PACKAGE}.kernels.dispatch import address_of, store, ticks


def entry(target, unused, unused_too):
    store(address_of(target), 0, ticks())
    return types.int32(0)
"""
