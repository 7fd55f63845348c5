"""Runs the GEMM engine on plain arrays, the way an executor would, without one."""

import numpy as np
import pytest

from tilework.kernels.cpu import isa
from tilework.kernels.cpu.epilogues.finish import Finish
from tilework.kernels.cpu.gemm import packing
from tilework.kernels.cpu.gemm import plan as gemm_plan
from tilework.primitives import dtypes


def name_of(array):
    return dtypes.get(array.dtype).name


def run(
    a,
    b,
    out,
    *,
    level=None,
    a_zero_point=0,
    b_zero_point=0,
    rows=None,
    bias=None,
    multiplier=None,
    shift=None,
    constants=None,
    residual=None,
    table=None,
    finish=False,
    tile=None,
    pairs_fit=False,
    rectangles=None,
):
    """Write a @ b into `out` at an instruction set level; rows: zero points of A's rows. Returns the plan."""
    (M, K), N = a.shape, b.shape[1]
    level = isa.select(level)
    zb = np.asarray(b_zero_point, np.int64) + packing.shift_of_b(name_of(b), level.dot)
    terms = (1 if rows is not None else 0) + (2 if zb.any() else 0)
    unit, store = a.strides[1] == 1 or K <= 1, name_of(out)
    plan = gemm_plan.plan(
        K, N, name_of(a), name_of(b), store,
        terms=terms, level=level, pairs_fit=pairs_fit, tile=tile,
        finish=finish or out.strides[1] != out.itemsize or residual is not None or table is not None or store == "s16",
    )  # fmt: skip
    columns = packing.fold(
        plan.layout,
        packing.column_sums(b, plan.layout.group),
        a_zero_point=None if rows is not None else a_zero_point,
        b_zero_point=b_zero_point,
        a_shift=plan.a_shift,
        b_shift=plan.b_shift,
        bias=bias,
        multiplier=multiplier,
        shift=shift,
        constants=constants,
    )
    address = 0
    if plan.finish or plan.finish_rest:
        scale = "none" if multiplier is None else "float" if shift is None else "fixed"
        kind = "" if residual is None else name_of(residual)
        address = gemm_plan.finisher(Finish(level.name, store, scale, kind, table is not None)).address
    packed, scratch = packing.pack(b, plan.layout), packing.aligned(plan.scratch_bytes(M, unit_stride=unit))
    words = gemm_plan.operand_words(
        a=a, packed_b=packed, out=out, columns=columns.data, row_zero_points=rows, residual=residual, table=table,
        scratch=scratch,
    )  # fmt: skip
    words += plan.parameters(M, plane=columns.plane, terms=terms, unit_stride=unit, finish=address)
    block, bases = np.array(words, np.int64), np.zeros(1, np.int64)
    for rectangle in rectangles or [(0, M, 0, N)]:
        scratch[:] = 0xEE
        assert gemm_plan.call_native(gemm_plan.driver().address, bases, block, np.array(rectangle, np.int64)) == 0
    return plan


def exact(a, b, *, a_zero_point=0, b_zero_point=0, rows=None, bias=None):
    """The int32 accumulators, modulo 2**32, from int64."""
    za = np.asarray(a_zero_point, np.int64) if rows is None else rows.astype(np.int64)[:, None]
    total = (a.astype(np.int64) - za) @ (b.astype(np.int64) - np.asarray(b_zero_point, np.int64))
    if bias is not None:
        total = total + bias
    return (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def canaries(m, n, dtype, step=1):
    """A poisoned output inside a larger poisoned array, and a function that says whether the rest is untouched."""
    whole = np.full((m + 2, step * n + 70), 0x5A, dtype)
    view = whole[1:-1, 5 : 5 + step * n : step]

    def untouched():
        kept = whole.copy()
        kept[1:-1, 5 : 5 + step * n : step] = 0x5A
        return bool((kept == np.full_like(kept, 0x5A)).all())

    return view, untouched


@pytest.fixture(scope="session")
def engine():
    """`engine.run(a, b, out, ...)`, `engine.exact(a, b, ...)`, `engine.canaries(m, n, dtype)`."""

    class Engine:
        pass

    Engine.run, Engine.exact, Engine.canaries = staticmethod(run), staticmethod(exact), staticmethod(canaries)
    return Engine


@pytest.fixture(params=[level.name for level in isa.available()])
def level(request):
    """Each instruction set level that this machine has."""
    return request.param


@pytest.fixture(params=[isa.available()[0].name, isa.available()[-1].name])
def extreme(request):
    """The least and the best level."""
    return request.param
