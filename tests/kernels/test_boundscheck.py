"""Under NUMBA_BOUNDSCHECK=1 an index outside of an array comes out as a named error, and steps that index have none."""

import os
import subprocess
import sys
from pathlib import Path

import tilework as tw

PROGRAM = '''
import ctypes
import dataclasses

import numpy as np

import tilework as tw
from tilework.kernels import forge
from tilework.kernels.entry import RAISED, OperandType
from tilework.primitives import ArgSpec, Axis, IndexSpace
from tilework.primitives.errors import KernelFailed

TILE = """
import numpy as np
from numba import njit


@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = x[n + 1]
"""
CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
x, y, bases = np.arange(9, dtype=np.int32), np.zeros(9, np.int32), np.zeros(1, np.int64)
block = np.array([0, x.ctypes.data, 9, 4, 0, y.ctypes.data, 9, 4], np.int64)
plain = forge.Native(TILE)
for tile in (plain, dataclasses.replace(plain, joined=True)):
    entry = CALL(forge.entry(tile, 1, (OperandType("s32", 1),) * 2).address)
    for last, status in ((8, 0), (9, RAISED)):
        ranges = np.array([0, last], np.int64)
        assert entry(bases.ctypes.data, block.ctypes.data, ranges.ctypes.data) == status


class Planted:
    """The same as a step."""

    name = "planted"

    def signature(self):
        return ArgSpec("x", "s32", shape=("N",)), ArgSpec("y", "s32", "write", shape=("N",))

    def index_space(self):
        return IndexSpace((Axis("n", "N"),))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


tw.factory.register("planted", backend="cpu")(lambda: dataclasses.replace(plain, joined=True))
pipe = tw.Pipeline("planted")
pipe.output("y", pipe.add(Planted(), x=pipe.input("x", "s32", ("N",))))
for executor in (tw.SingleThreadExecutor(), tw.TilingExecutor(2)):
    try:
        executor.run(pipe, {"x": x})
    except KernelFailed as error:
        assert "raised an exception in native code" in str(error), error
    else:
        raise AssertionError("an index outside of an array was not noticed")

rng = np.random.default_rng(0)
x = rng.standard_normal((3, 5, 37), np.float32)
for name, make in {
    "softmax": lambda p, v: tw.ops.softmax(v),
    "gather": lambda p, v: tw.ops.gather(v, p.constant("i", np.array([4, 0, -1])), 1),
}.items():
    pipe = tw.Pipeline(name)
    pipe.output("y", make(pipe, pipe.input("x", "f32", x.shape)))
    right = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    assert (tw.TilingExecutor(2).run(pipe, {"x": x})["y"] == right).all(), name
print("nothing is outside")
'''


def test_an_index_outside_comes_out_as_an_error(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    root = str(Path(tw.__file__).parents[1])
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    program = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("nothing is outside\n")
