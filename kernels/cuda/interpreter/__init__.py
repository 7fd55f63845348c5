"""Kernels without a GPU: the source that the compiler takes, executed on the CPU and checked at every step.

    >>> run(kernel, grid=(4,), block=(128,), args=(x, y, n))            # whole blocks in step
    >>> run(kernel, grid=(4,), block=(128,), args=(x, y, n), seed=7)    # warps one by one, in an order from the seed

It finds accesses out of bounds or misaligned, races (with a record of every byte, so without luck), reads of shared
memory that nobody wrote or that an asynchronous copy has not delivered, collectives and barriers that not all threads
reach, and arithmetic that the compiler would contract or widen. It models the instructions as the PTX ISA describes
them; that a GPU does the same is checked by bench/gpu_check.py where there is one.
"""

from .faults import KernelFault as KernelFault
from .machine import run as run
