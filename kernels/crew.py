"""Workers that wait for programs, in native code: threads that spin for a moment, then sleep, and never hold the GIL.

Each worker has a box. Who has a program to run takes free boxes, posts it there, works on it too, and at the end takes
back what no worker has begun: so a worker that the system has not scheduled yet holds up nobody. Only tiles that a
running worker has taken are waited for.

A box's state is 0, or the address of the run's progress (which no other run has meanwhile) with one of three marks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .dispatch import PACKAGE

# Words of a box; the state and what goes with it are in one cache line, mutex and condition in others.
STATE, PARKED, BASES, PROGRAM, PROGRESS, STOP, LOOP = range(7)
MUTEX, CONDITION, BOX = 16, 32, 48
MUTEX_BYTES = CONDITION_BYTES = 128  # more than any system's pthread_mutex_t and pthread_cond_t take
POSTED, FILLING, TAKEN = 1, 2, 3  # marks of a state

# Words of a team: tables of bases (workers), the loop, address of the tables, bytes from one to the next; the crew's
# boxes, the address of [their number, when a program last ended], whether to wake who sleeps in any case; then the
# boxes that this run has posted to.
WORKERS, WORKER, TABLES, PITCH, BOXES, COUNT, WAKE, TEAM = range(8)

SPINS = 4000  # turns of a waiting loop, about 50 us, before a caller gives the processor up
PATIENCE = 10_000  # the same, before a worker sleeps
# Waking a thread takes 5 us, and 100 on a virtual machine whose processor has gone to rest: a short program wakes
# nobody unless another has run a moment ago, in processor ticks, so that more of them are to be expected.
RECENT = 2**21


@intrinsic
def swap_if(typingctx: Any, address: Any, old: Any, new: Any) -> Any:
    """Set the int64 at an address to `new` if it is `old`; whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.extract_value(builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst"), 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def put_first(typingctx: Any, address: Any, value: Any) -> Any:
    """Set the int64 at an address; what is read later is read after everybody can see it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.atomic_rmw("xchg", pointer, args[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def look(typingctx: Any, address: Any) -> Any:
    """The int64 at an address, read after everything that this thread has put there for all to see."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(types.int64), codegen


def _posix(name: str, arguments: int) -> Any:
    """An intrinsic that calls a function of the C library with so many addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer] * arguments)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [builder.inttoptr(a, pointer) for a in args])
        return context.get_dummy_value()

    if arguments == 1:

        @intrinsic
        def one(typingctx: Any, a: Any) -> Any:
            return types.void(types.int64), codegen

        return one

    @intrinsic
    def two(typingctx: Any, a: Any, b: Any) -> Any:
        return types.void(types.int64, types.int64), codegen

    return two


lock = _posix("pthread_mutex_lock", 1)
unlock = _posix("pthread_mutex_unlock", 1)
signal = _posix("pthread_cond_signal", 1)
wait = _posix("pthread_cond_wait", 2)

# serve(box): a worker's life. Returns when it is told to stop.
SERVE = f"""
from numba import types
from {PACKAGE}.kernels.crew import lock, look, put_first, swap_if, unlock, wait
from {PACKAGE}.kernels.dispatch import address_of, load, load_atomic, relax
from {PACKAGE}.kernels.entry import call_entry_at


def entry(box_at, unused, unused_too):
    box = address_of(box_at)
    mutex, condition, spins = box + {8 * MUTEX}, box + {8 * CONDITION}, 0
    while load_atomic(box + {8 * STOP}) == 0:
        state = load_atomic(box)
        if state & 3 != {POSTED}:
            spins += 1
            if spins < {PATIENCE}:
                relax()
                continue
            lock(mutex)
            put_first(box + {8 * PARKED}, 1)
            while look(box) & 3 != {POSTED} and look(box + {8 * STOP}) == 0:
                wait(condition, mutex)
            put_first(box + {8 * PARKED}, 0)
            unlock(mutex)
        elif swap_if(box, state, state - {POSTED} + {TAKEN}):
            call_entry_at(load(box, {LOOP}), load(box, {BASES}), load(box, {PROGRAM}), load(box, {PROGRESS}))
            put_first(box, 0)
        spins = 0
    return types.int32(0)
"""

# team(team, program, progress): run a program with the workers that are free now; the caller is one of them.
TEAM_OF_CREW = f"""
from numba import types
from {PACKAGE}.kernels.crew import lock, look, put_first, signal, swap_if, unlock
from {PACKAGE}.kernels.dispatch import address_of, load, load_atomic, relax, store, ticks, yield_processor
from {PACKAGE}.kernels.entry import call_entry_at


def entry(team, program, progress):
    me, code, run = address_of(team), address_of(program), address_of(progress)
    workers, loop, tables, pitch = team[{WORKERS}], team[{WORKER}], team[{TABLES}], team[{PITCH}]
    box, boxes, posted = team[{BOXES}], load_atomic(team[{COUNT}]), 0
    wakes = team[{WAKE}] != 0 or ticks() - load(team[{COUNT}], 1) < {RECENT}
    for _ in range(boxes):
        if posted + 1 >= workers:
            break
        free = load_atomic(box) == 0 and (wakes or look(box + {8 * PARKED}) == 0)
        if free and swap_if(box, 0, run + {FILLING}):
            posted += 1
            store(box, {BASES}, tables + posted * pitch)
            store(box, {PROGRAM}, code)
            store(box, {PROGRESS}, run)
            store(box, {LOOP}, loop)
            put_first(box, run + {POSTED})
            if look(box + {8 * PARKED}) != 0:
                lock(box + {8 * MUTEX})
                signal(box + {8 * CONDITION})
                unlock(box + {8 * MUTEX})
            store(me, {TEAM} - 1 + posted, box)
        box += {8 * BOX}
    call_entry_at(loop, tables, code, run)
    for n in range(posted):
        box, spins = load(me, {TEAM} + n), 0
        if not swap_if(box, run + {POSTED}, 0):
            while load_atomic(box) == run + {TAKEN}:
                relax()
                spins += 1
                if spins > {SPINS}:
                    yield_processor()  # the worker we wait for may be waiting for this very processor
    store(team[{COUNT}], 1, ticks())
    return types.int32(load(run, 0))
"""

# stop(box): tell a worker to stop, and wake it.
STOP_WORKER = f"""
from numba import types
from {PACKAGE}.kernels.crew import lock, put_first, signal, unlock
from {PACKAGE}.kernels.dispatch import address_of


def entry(box_at, unused, unused_too):
    box = address_of(box_at)
    put_first(box + {8 * STOP}, 1)
    lock(box + {8 * MUTEX})
    signal(box + {8 * CONDITION})
    unlock(box + {8 * MUTEX})
    return types.int32(0)
"""
