"""What the interpreter finds wrong with a kernel."""

from __future__ import annotations

from ....primitives.errors import KernelFailed


class KernelFault(KernelFailed):
    """A kernel did what a GPU would not do, or would do wrongly: the message names kernel, line, place and thread.

    kind   "bounds", "alignment", "race", "uninitialised", "divergence", "deadlock", "typing" or "unsupported"
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
