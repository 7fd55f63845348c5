"""How long work on a GPU takes: by the GPU's own clock, between two events in the stream that runs it.

The host's clock would count the launch, and stop before the work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..primitives.errors import Unsupported


class EventTimer:
    """time(call, n): seconds that n calls take on the GPU.

    cuda    the module whose `event` and `event_elapsed_time` are used; None: numba.cuda
    stream  the stream that the calls go to; None: the default one
    """

    name = "events"

    def __init__(self, cuda: Any = None, stream: Any = None) -> None:
        self.cuda = cuda if cuda is not None else _numba_cuda()
        self.stream = stream if stream is not None else self.cuda.default_stream()

    def time(self, call: Callable[[], Any], n: int) -> float:
        """Seconds between an event before the first call and one after the last, once both have happened."""
        begin, end = self.cuda.event(timing=True), self.cuda.event(timing=True)
        begin.record(self.stream)
        for _ in range(n):
            call()
        end.record(self.stream)
        end.synchronize()
        return float(self.cuda.event_elapsed_time(begin, end)) * 1e-3


def _numba_cuda() -> Any:
    try:
        from numba import cuda

        present = cuda.is_available()
    except Exception as error:  # a broken driver raises errors of many types
        raise Unsupported(f"timing on a GPU needs a CUDA device: {type(error).__name__}: {error}") from error
    if not present:
        raise Unsupported(
            "timing on a GPU needs a CUDA device, and none answers; device 'interpreter' runs without one"
        )
    return cuda
