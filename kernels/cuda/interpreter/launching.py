"""A step's launches on the interpreter: arrays of the host stand for memory of the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...entry import bits_view
from ..launch import At, Device, Launch, Status, Temp
from .machine import run

Array = np.ndarray[Any, Any]


def execute(device: Device, *operands: Array, seed: int | None = None) -> int:
    """Run a step; the last operand is written. Returns its status, 0 where nothing was wrong."""
    launches = device.plan(*operands)
    # Poisoned, and aligned as device memory is.
    temporaries = [
        np.full(-(-n // 16) * 2, 0xA5A5A5A5A5A5A5A5, np.uint64).view(np.uint8)[:n] for n in launches.temporaries
    ]
    status = np.zeros(1, np.int32)
    for launch in launches.launches:
        launch_on_host(launch, operands, temporaries, status, seed)
    return int(status[0])


def launch_on_host(
    launch: Launch, operands: tuple[Array, ...], temporaries: list[Array], status: Array, seed: int | None = None
) -> None:
    """Run one launch over arrays of the host."""
    args: list[Any] = []
    for n, (arg, parameter) in enumerate(zip(launch.args, launch.parameters, strict=True)):
        if isinstance(arg, At):
            given = memory(np.asarray(operands[arg.operand]))
        elif isinstance(arg, Temp):
            given = temporaries[arg.index].view(NUMPY[arg.dtype])
        elif isinstance(arg, Status):
            given = status
        else:
            args.append(arg)
            continue
        given = given.view()
        if n not in launch.writes:
            given.flags.writeable = False
        if parameter != f"{_NAMES[given.dtype]}*":
            given = given.view(NUMPY[parameter[:-1]])
        args.append(given)
    run(launch.kernel, launch.grid, launch.block, args, seed=seed)


def memory(array: Array) -> Array:
    """The array as a kernel sees it: bits for what has no type of its own, booleans as bytes."""
    seen = bits_view(array)
    return seen.view(np.uint8) if seen.dtype == np.bool_ else seen


NUMPY = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32,
    "u64": np.uint64, "s64": np.int64, "f32": np.float32,
}  # fmt: skip
_NAMES = {np.dtype(v): k for k, v in NUMPY.items()}
