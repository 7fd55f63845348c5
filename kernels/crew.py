"""Workers that wait for programs, in native code: threads that spin for a moment, then sleep, and never hold the GIL.

Each worker has a box. Who has a program to run takes free boxes, posts it there, works on it too, and at the end takes
back what no worker has begun: so a worker that the system has not scheduled yet holds up nobody. Only tiles that a
running worker has taken are waited for.

A box's state is 0, or the address of the run's progress (which no other run has meanwhile) with one of three marks.

A system may wake a worker on the very processor on which the caller computes (to save power, or on a virtual machine to
leave processors to others), where it waits for milliseconds. A worker that slept there, or is still asleep when it is
called the second time, is told to run on the caller's other processors.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .dispatch import PACKAGE

# Words of a box; the state and what goes with it are in one cache line, mutex and condition in others. Under the mutex:
# the system's number of the worker, the processor on which it went to sleep, how often it was called since, and a set
# of processors.
STATE, PARKED, BASES, PROGRAM, PROGRESS, STOP, LOOP = range(7)
MUTEX, CONDITION, THREAD, SLEPT_ON, CALLS, SET, BOX = 16, 32, 48, 49, 50, 56, 72
SET_BYTES = 128  # a bit for each of 1024 processors
MUTEX_BYTES = CONDITION_BYTES = 128  # more than any system's pthread_mutex_t and pthread_cond_t take
POSTED, FILLING, TAKEN = 1, 2, 3  # marks of a state

# Words of a team: tables of bases (workers), the loop, address of the tables, bytes from one to the next; the crew's
# boxes, the address of [their number, when a program last ended], whether to wake who sleeps in any case; then the
# boxes that this run has posted to.
WORKERS, WORKER, TABLES, PITCH, BOXES, COUNT, WAKE, TEAM = range(8)

SPINS = 4000  # turns of a waiting loop, about 100 us, before the processor is given up
PATIENCE = 50_000  # the same, before a worker sleeps: over a millisecond, as other libraries' threads wait
# Waking a thread takes 5 us, and 100 on a virtual machine whose processor has gone to rest: a short program wakes
# nobody unless another has run a moment ago, in processor ticks, so that more of them are to be expected.
RECENT = 2**22


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


@intrinsic
def processor(typingctx: Any) -> Any:
    """The number of the processor that this runs on; -1 where the system does not say."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "linux":
            return ir.Constant(ir.IntType(64), -1)
        kind = ir.FunctionType(ir.IntType(32), [])
        here = builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_getcpu"), [])
        return builder.sext(here, ir.IntType(64))

    return types.int64(), codegen


@intrinsic
def keep_away(typingctx: Any, thread: Any, here: Any, room: Any) -> Any:
    """Have a thread run on the processors that this one may use, but for number `here`, if there are others.

    room   address of SET_BYTES bytes
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform == "linux":
            thread, here, room = args
            integer, word = ir.IntType(32), ir.IntType(64)
            pointer = builder.inttoptr(room, word.as_pointer())
            kind = ir.FunctionType(integer, [integer, word, word.as_pointer()])
            size = ir.Constant(word, SET_BYTES)
            get = cgutils.get_or_insert_function(builder.module, kind, "sched_getaffinity")
            known = builder.icmp_signed("==", builder.call(get, [integer(0), size, pointer]), integer(0))
            inside = builder.icmp_unsigned("<", here, ir.Constant(word, 8 * SET_BYTES))
            with builder.if_then(builder.and_(known, inside)):
                at = builder.gep(pointer, [builder.lshr(here, word(6))])
                others = builder.not_(builder.shl(word(1), builder.and_(here, word(63))))
                builder.store(builder.and_(builder.load(at), others), at)
                put = cgutils.get_or_insert_function(builder.module, kind, "sched_setaffinity")
                builder.call(put, [builder.trunc(thread, integer), size, pointer])  # refuses a set without a member
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


# serve(box): a worker's life. Returns when it is told to stop.
SERVE = f"""
from numba import types
from {PACKAGE}.kernels.crew import lock, look, processor, put_first, swap_if, unlock, wait
from {PACKAGE}.kernels.dispatch import address_of, load, load_atomic, relax, store, yield_processor
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
                if spins > {SPINS} and spins % 64 == 0:
                    yield_processor()  # somebody else may have work
                continue
            lock(mutex)
            store(box, {SLEPT_ON}, processor())
            store(box, {CALLS}, 0)
            put_first(box + {8 * PARKED}, 1)
            if look(box) & 3 != {POSTED} and look(box + {8 * STOP}) == 0:
                wait(condition, mutex)  # once: where the program is over by now, the next may be here in a moment
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
from {PACKAGE}.kernels.crew import keep_away, lock, look, processor, put_first, signal, swap_if, unlock
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
                here, calls = processor(), load(box, {CALLS})
                store(box, {CALLS}, calls + 1)
                if calls == 1 or (calls == 0 and load(box, {SLEPT_ON}) == here):
                    keep_away(load(box, {THREAD}), here, box + {8 * SET})
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
