"""No plan calls a reference: every step that can be drawn has compiled code on the CPU."""

import tilework as tw
from tilework.bench.prove.draw import Draw
from tilework.bench.prove.run import OF
from tilework.kernels import factory, ops
from tilework.kernels.cpu import isa
from tilework.kernels.linear import CodeFormat, Linear
from tilework.kernels.ops.arrays import apply_array

SLOW = {"interpreted", "plain"}  # plain Python; and products whose weights only a run knows
COPIES = ("moving.views", "moving.joins")  # where steps are that are copies of views, and nothing of their own


def _served(step):
    """The variant that a plan takes for a step of a pipeline; None for one that sweeps copies."""
    facts = {
        "isa": isa.select().name,
        "tile": {},
        "kernel": step.kernel,
        "operands": dict(step.inputs),
        "dtypes": tuple(v.dtype.name if v.dtype is not None else "function" for v in step.inputs.values()),
        "ranks": tuple(v.ndim for v in step.inputs.values()),
    }
    if type(step.kernel).__module__.endswith(COPIES):
        return "copy"
    expanded = factory.find_if_any(f"expand.{step.kernel.name}", "cpu", **facts)
    return (expanded or factory.find(step.kernel.name, "cpu", **facts)).variant


def test_every_step_is_served_by_compiled_code():
    slow, cells = set(), {}
    for cell in OF:
        kept = cells.setdefault(cell.step.split(" ")[0] if cell.step.startswith(("cast", "linear")) else cell.step, [])
        if not kept or kept[-1].dtype != cell.dtype:
            kept.append(cell)
    for n, cell in enumerate(cell for kept in cells.values() for cell in (kept[0], kept[-1])):
        draw = Draw((1, n), limit=17)
        OF[cell].draw(draw, cell)
        slow |= {(cell.step, cell.dtype) for step in draw.pipe.steps if _served(step) in SLOW}
    assert slow == set()


def test_nothing_that_runs_whole_arrays_in_python_hides_under_another_name():
    factory.names("cpu")
    ours = [
        (name, v.variant, v.build.__annotations__.get("return", "nothing said"))
        for (name, backend), known in factory._variants.items()
        for v in known
        if backend == "cpu" and v.build.__module__.startswith("tilework.")
    ]
    assert not [found for found in ours if found[2] in ("nothing said", "Any")]
    whole = {(name, variant) for name, variant, returns in ours if "Whole" in returns}
    assert {variant for _, variant in whole} == SLOW
    assert {name for name, variant in whole if variant == "plain"} == {"linear"}


def test_a_plan_names_what_it_runs_in_python():
    pipe = tw.Pipeline("p")
    x, codes, scale = pipe.input("x", "f32", (4, 64)), pipe.input("c", "u8", (32, 32)), pipe.input("s", "f32", (32, 2))
    pipe.output(
        "y", ops.softmax(pipe.add(Linear(CodeFormat(4, block=(1, 32)), 64, "f32"), x=x, codes=codes, scale=scale))
    )
    pipe.output("z", apply_array("determinant", ops.matmul(x, ops.transpose(x, (1, 0))))[0])
    _, _, named = tw.TilingExecutor(1).compile(pipe).explain().partition("in Python, not compiled\n")
    lines = named.split("\n\n")[0].splitlines()
    assert lines == ["  linear_f32: linear/plain, the reference", "  arrays_determinant: a function of whole arrays"]
