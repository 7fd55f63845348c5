"""Machine code in the cache: what it needs, and how it is linked without the compiler."""

import ctypes
import gc
import logging
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from tilework.kernels import cache, forge
from tilework.kernels.machine_code import MachineCode, undefined_symbols

pytestmark = pytest.mark.skipif(forge.jit_disabled(), reason="looks at compiled code")
SOURCE = """
import math
from numba import types


def entry(bases, block, ranges):
    block[0] = block[1] + int(math.expm1(float(block[2])))
    return types.int32(block[0])
"""


def call(address, a, b):
    block = np.array([0, a, b], np.int64)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(address)
    status = run(block.ctypes.data, block.ctypes.data, block.ctypes.data)
    return status, block[0]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An entry compiled into an empty cache, which the process then forgets."""
    monkeypatch.setenv("TILEWORK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(forge, "_entries", {})
    entry = forge.entry(forge.Native(SOURCE, raw=True), 0, ())
    assert entry.compiled
    forge._entries.clear()
    return entry


def test_code_from_the_cache_computes_what_compiled_code_does(made):
    loaded = forge.entry(forge.Native(SOURCE, raw=True), 0, ())
    assert not loaded.compiled
    assert loaded.address != made.address
    assert call(loaded.address, 5, 2) == call(made.address, 5, 2) == (11, 11)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_code_from_the_cache_outlives_what_python_knows_of_it(made):
    """Plans hold addresses and threads sleep in such code: nobody may have it unmapped behind them."""
    address = forge.entry(forge.Native(SOURCE, raw=True), 0, ()).address
    forge._entries.clear()
    gc.collect()
    with open("/proc/self/maps") as file:
        spans = [[int(bound, 16) for bound in line.split()[0].split("-")] for line in file if "x" in line.split()[1]]
    assert any(first <= address < last for first, last in spans)
    assert call(address, 5, 2) == (11, 11)


def test_code_round_trips_through_bytes(made):
    code = MachineCode.loads(cache.read(made.key))
    assert MachineCode.loads(code.dumps()) == code
    if sys.platform == "linux":
        assert "expm1" in code.needs
        assert code.missing() == []


@pytest.mark.parametrize("kept", [16, 9, 3, 0])
def test_cut_bytes_are_no_machine_code(made, kept):
    with pytest.raises((ValueError, KeyError, TypeError, struct.error)):
        MachineCode.loads(cache.read(made.key)[:kept])


def test_code_that_needs_what_nobody_has_is_compiled_anew(made, caplog):
    code = MachineCode.loads(cache.read(made.key))
    cache.write(made.key, MachineCode(code.object, code.function, ("no_such_symbol",)).dumps(), SOURCE)
    cache._warned.clear()
    with caplog.at_level(logging.WARNING, logger="tilework"):
        again = forge.entry(forge.Native(SOURCE, raw=True), 0, ())
    assert again.compiled
    assert "it needs no_such_symbol" in caplog.text
    assert call(again.address, 5, 2) == (11, 11)


def test_code_whose_needs_are_not_known_is_linked_after_everything_is_loaded(made):
    code = MachineCode.loads(cache.read(made.key))
    cache.write(made.key, MachineCode(code.object, code.function, None).dumps(), SOURCE)
    loaded = forge.entry(forge.Native(SOURCE, raw=True), 0, ())
    assert not loaded.compiled
    assert call(loaded.address, 5, 2) == (11, 11)


def test_code_without_its_function_is_compiled_anew(made):
    code = MachineCode.loads(cache.read(made.key))
    cache.write(made.key, MachineCode(code.object, "another", code.needs).dumps(), SOURCE)
    assert forge.entry(forge.Native(SOURCE, raw=True), 0, ()).compiled


@pytest.mark.parametrize("file", [b"", b"junk", b"\xcf\xfa\xed\xfe" + bytes(60), b"\x7fELF\x01\x01" + bytes(60)])
def test_needs_of_other_object_formats_are_not_known(file):
    assert undefined_symbols(file) is None


def test_a_process_that_finds_everything_compiled_does_not_load_the_compiler(tmp_path):
    code = (
        "import sys, numpy as np, tilework as tw\n"
        "p = tw.Pipeline('p')\n"
        "p.output('y', tw.ops.relu(p.input('x', 's8', (40,))))\n"
        "tw.TilingExecutor(1).run(p, {'x': np.zeros(40, np.int8)})\n"
        "print('numba.np.arraymath' in sys.modules)\n"
    )
    env = {**os.environ, "TILEWORK_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(2)
    ]
    assert found == ["True", "False" if sys.platform == "linux" else "True"]
