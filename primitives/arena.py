"""One block of memory for everything that a run needs between its first and its last kernel.

Buffers travel as handles. Each lives from the step that writes it first to the step that reads it last; buffers whose
lives do not meet may have the same bytes, and `plan_offsets` decides which.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NewType

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, GuardViolation
from .memory import address_of, aligned_bytes, checked_align

BufferId = NewType("BufferId", int)

POISON = 0xA5  # what memory holds that nobody may read: before the first write and after the last read
GUARD = 0xC3  # what the guard bytes around a buffer hold in debug mode
GUARD_BYTES = 64
_NEVER = np.iinfo(np.int64).max
_WORK = 100_000  # orders tried beyond the fixed ones: this / buffers**1.5, which is about 0.1 s at any size
_ROUNDS = 100  # but never more than this
_NOISE = (0.3, 1.0, 0.1, 0.3, 1.0)  # of the logarithm of what an order goes by


class Request(NamedTuple):
    """A buffer to place.

    size   bytes
    first  step that writes it first
    last   step that reads it last, included; of an alias, too
    align  its offset is a multiple of this
    label  how errors call it
    """

    size: int
    first: int
    last: int
    align: int = 64
    label: str = ""


def lower_bound(requests: Iterable[Sequence[Any]]) -> int:
    """Bytes of the largest set of buffers that live in one step: no plan needs less."""
    change: dict[int, int] = {}
    for size, first, last, *_ in requests:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    live = most = 0
    for step in sorted(change):
        live += change[step]
        most = max(most, live)
    return most


def plan_offsets(requests: Sequence[Sequence[Any]]) -> tuple[list[int], int]:
    """Place buffers in one block so that two which live in the same step share no byte.

    requests  (size, first step, last step, align) each, or Request; both steps are included

    Returns (offsets, bytes of the block). Each buffer goes into the smallest gap that takes it. That depends on the
    order in which they come, so several are tried: by size, lifetime and the fullest step, each also as a skyline that
    rises evenly; then variations of them, until the block is within 2 % of `lower_bound` or the work is spent. The
    same requests give the same plan.
    Greedy by size: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020.
    Raises ArgumentError for a request that cannot be placed.
    """
    checked = [_checked(i, request) for i, request in enumerate(requests)]
    placed = [i for i, request in enumerate(checked) if request.size]
    if not placed:
        return [0] * len(checked), 0
    planner = _Planner([checked[i] for i in placed])
    found, peak = planner.best()
    offsets = [0] * len(checked)
    for i, offset in zip(placed, found, strict=True):
        offsets[i] = offset
    return offsets, peak


def _checked(i: int, request: Sequence[Any]) -> Request:
    found = Request(*request)
    name = f"request {i}" + (f" ({found.label})" if found.label else "")
    for what, number in (("size", found.size), ("first step", found.first), ("last step", found.last)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ArgumentError(f"{name}: {what} is {number!r}; a whole number is needed")
    if found.size < 0 or found.last < found.first:
        raise ArgumentError(
            f"{name}: {found.size} bytes from step {found.first} to {found.last}; "
            f"a size is 0 or more and a life does not end before it begins"
        )
    return Request(int(found.size), int(found.first), int(found.last), checked_align(found.align), found.label)


class _Planner:
    """Requests as columns; `place` puts them down in a given order."""

    def __init__(self, requests: list[Request]) -> None:
        self.count = len(requests)
        self.size = np.array([r.size for r in requests], np.int64)
        self.first = np.array([r.first for r in requests], np.int64)
        self.last = np.array([r.last for r in requests], np.int64)
        self.align = [r.align for r in requests]
        self.bound = lower_bound(requests)
        self.aligned_bound = lower_bound((r.size + -r.size % r.align, r.first, r.last) for r in requests)

    def best(self) -> tuple[list[int], int]:
        """Try orders until one comes close to the bound or the work is spent."""
        life = (self.last - self.first + 1).astype(np.float64)
        size = self.size.astype(np.float64)
        fullest = self._fullest()
        keys = [size, size * life, life, fullest**4 * size, fullest**10 * size * life, fullest**4 * life]
        keys = [np.log(key) for key in keys]
        enough = max(self.bound + self.bound // 100, self.aligned_bound)

        order = _descending(keys[0])
        offsets, peak = self.place(order, None)

        def attempt(other: list[int], limit: int) -> None:
            nonlocal order, offsets, peak
            found, top = self.place(other, limit)
            if found:
                order, offsets, peak = other, found, top

        for key in keys:
            for other in (_descending(key), self._rising(_descending(key))):
                if peak <= enough:
                    return offsets, peak
                attempt(other, peak)
        enough = max(enough, self.bound + self.bound // 50)  # what follows is not worth 1 %
        seeded = np.random.default_rng(0)  # the same requests give the same plan
        for round in range(min(_ROUNDS, int(_WORK / self.count**1.5))):
            if peak <= enough:
                break
            if round % 3 < 2:
                noisy = keys[round % len(keys)] + seeded.normal(0, _NOISE[round % len(_NOISE)], self.count)
                attempt(self._rising(_descending(noisy)), peak)
            else:  # sideways steps count here: they lead out of plateaus
                attempt(self._moved(order, offsets, peak, seeded), peak + 1)
        return offsets, peak

    def _fullest(self) -> NDArray[np.float64]:
        """For each buffer, the largest number of bytes that live in one of its steps, relative to the bound."""
        steps = np.unique(self.first)
        change = np.zeros(len(steps) + 1)
        np.add.at(change, steps.searchsorted(self.first), self.size)
        np.add.at(change, steps.searchsorted(self.last, side="right"), -self.size)
        live = np.cumsum(change[:-1]) / self.bound
        ranges = zip(steps.searchsorted(self.first), steps.searchsorted(self.last, side="right"), strict=True)
        return np.array([live[a:b].max() for a, b in ranges])

    def _rising(self, order: list[int]) -> list[int]:
        """The order in which a skyline rises: always the buffer that can lie lowest, of these the first of an order."""
        rank = np.empty(self.count, np.int64)
        rank[order] = np.arange(self.count)
        floor = np.zeros(self.count, np.int64)
        key = rank.copy()  # floor and rank in one number
        rising = []
        for _ in range(self.count):
            i = int(key.argmin())
            rising.append(i)
            end = floor[i] + self.size[i]
            met = (self.first <= self.last[i]) & (self.last >= self.first[i]) & (floor < end) & (key != _NEVER)
            floor[met] = end
            key[met] = end * self.count + rank[met]
            key[i] = _NEVER
        return rising

    def _moved(self, order: list[int], offsets: list[int], peak: int, chance: np.random.Generator) -> list[int]:
        """The order with a buffer at the top put earlier, or one that meets it."""
        top = [i for i in order if offsets[i] + self.size[i] == peak]
        i = top[int(chance.integers(len(top)))]
        if chance.random() < 0.3:
            i = int(chance.choice(np.flatnonzero((self.first <= self.last[i]) & (self.last >= self.first[i]))))
        at = order.index(i)
        other = order[:at] + order[at + 1 :]
        other.insert(int(chance.integers(at + 1)), i)
        return other

    def place(self, order: list[int], limit: int | None) -> tuple[list[int], int]:
        """Put each buffer into the smallest gap between those that it meets. Gives up once the peak reaches limit."""
        offset = np.zeros(self.count, np.int64)
        end = np.zeros(self.count, np.int64)
        placed = np.empty(self.count, np.int64)  # in the order of their offsets
        starts = np.empty(self.count, np.int64)  # their offsets
        peak = 0
        for done, i in enumerate(order):
            ids = placed[:done]
            met = ids[(self.first[ids] <= self.last[i]) & (self.last[ids] >= self.first[i])]
            size, align = int(self.size[i]), self.align[i]
            where = 0
            if met.size:
                below = np.zeros(met.size + 1, np.int64)
                np.maximum.accumulate(end[met], out=below[1:])
                below += -below % align
                gaps = offset[met] - below[:-1]
                gaps[gaps < size] = _NEVER
                best = int(gaps.argmin())
                where = int(below[best] if gaps[best] != _NEVER else below[-1])
            offset[i], end[i] = where, where + size
            peak = max(peak, where + size)
            if limit is not None and peak >= limit:
                return [], peak
            at = int(starts[:done].searchsorted(where))
            placed[at + 1 : done + 1] = placed[at:done]
            starts[at + 1 : done + 1] = starts[at:done]
            placed[at], starts[at] = i, where
        return offset.tolist(), peak


def _descending(key: NDArray[np.float64]) -> list[int]:
    order: list[int] = np.argsort(-key, kind="stable").tolist()
    return order


class Arena:
    """One aligned block that holds every buffer of a plan.

        arena = Arena(requests, debug=True)
        view = arena.view(BufferId(0))

    requests  one Request (or tuple) for each buffer; BufferId(i) is the handle of the i-th
    debug     put guard bytes around every buffer: `begin` sets them when a buffer comes to life, `check_guards` and
              `end` find a kernel that wrote outside
    """

    def __init__(self, requests: Sequence[Sequence[Any]], debug: bool = False) -> None:
        self.requests = tuple(_checked(i, request) for i, request in enumerate(requests))
        self.debug = debug
        guarded = [self._guarded(r) for r in self.requests] if debug else self.requests
        offsets, self.nbytes = plan_offsets(guarded)
        if debug:
            offsets = [offset + max(GUARD_BYTES, r.align) for offset, r in zip(offsets, self.requests, strict=True)]
        self.offsets: tuple[int, ...] = tuple(offsets)
        align = max((r.align for r in self.requests), default=1)
        self.memory: NDArray[np.uint8] = aligned_bytes(self.nbytes, max(align, 64))
        self._alive: set[BufferId] = set()

    @property
    def lower_bound(self) -> int:
        """Bytes of the largest live set, without guards; `nbytes` is what the plan needs."""
        return lower_bound(self.requests)

    @property
    def address(self) -> int:
        """Where the block of memory begins."""
        return address_of(self.memory)

    def offset(self, handle: BufferId) -> int:
        """Bytes from the beginning of the block to a buffer."""
        self._request(handle)
        return self.offsets[handle]

    def view(self, handle: BufferId) -> NDArray[np.uint8]:
        """The bytes of a buffer, writable. LayoutSpec.view_on gives them a shape and a type."""
        request, offset = self._request(handle), self.offsets[handle]
        return self.memory[offset : offset + request.size]

    def begin(self, handle: BufferId) -> None:
        """A buffer comes to life: in debug mode its bytes are poisoned and its guards set."""
        if self.debug:
            self.poison(handle)
            before, after = self._guards(handle)
            before[:] = after[:] = GUARD
            self._alive.add(handle)

    def end(self, handle: BufferId, after: str = "") -> None:
        """A buffer has been read for the last time: in debug mode its guards are checked and its bytes poisoned."""
        if self.debug and handle in self._alive:
            self.check_guards(after, [handle])
            self._alive.discard(handle)
            self.poison(handle)

    def poison(self, handle: BufferId) -> None:
        """Fill a buffer with 0xA5, so that whoever reads it without writing it gets nonsense."""
        self.view(handle)[:] = POISON

    def violations(self, handles: Iterable[BufferId] | None = None) -> list[str]:
        """One line for every live buffer (or each of `handles`) with a changed guard."""
        found = []
        for handle in sorted(self._alive if handles is None else handles):
            request = self._request(handle)
            before, after = self._guards(handle)
            name = request.label or f"buffer {handle}"
            for guard, side in ((before, "before"), (after, "after")):
                changed = np.flatnonzero(guard != GUARD)
                if changed.size:
                    # Distance from the buffer: its first byte is 0, the one before is -1, the one after is size.
                    near = int(changed[-1]) - guard.size if side == "before" else request.size + int(changed[0])
                    index = near + guard.size if side == "before" else near - request.size
                    found.append(
                        f"{name!r} ({request.size} bytes) has {changed.size} changed guard bytes {side} it, "
                        f"the nearest at byte {near}: {int(guard[index]):#04x} where {GUARD:#04x} was set"
                    )
        return found

    def check_guards(self, after: str = "", handles: Iterable[BufferId] | None = None) -> None:
        """Raise GuardViolation if a guard of a live buffer has changed. Does nothing outside debug mode.

        after  name of the step that has just run, for the message
        """
        if self.debug:
            found = self.violations(handles)
            if found:
                who = f"after {after!r}: " if after else ""
                raise GuardViolation(f"{who}something wrote outside its buffer: {'; '.join(found)}")

    def _guarded(self, request: Request) -> Request:
        before = max(GUARD_BYTES, request.align)  # so that the buffer itself stays aligned
        return request._replace(size=before + request.size + GUARD_BYTES)

    def _guards(self, handle: BufferId) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        request, offset = self._request(handle), self.offsets[handle]
        end = offset + request.size
        return self.memory[offset - GUARD_BYTES : offset], self.memory[end : end + GUARD_BYTES]

    def _request(self, handle: BufferId) -> Request:
        if not 0 <= handle < len(self.requests):
            raise ArgumentError(f"no buffer {handle}: the arena has {len(self.requests)}")
        return self.requests[handle]

    def __repr__(self) -> str:
        return f"Arena({len(self.requests)} buffers, {self.nbytes} bytes, at least {self.lower_bound})"
