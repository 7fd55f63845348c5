"""GEMMs and what follows them, fused and packed, against the reference: to the bit."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw

RNG = np.random.default_rng(20)
CODES = {"u8": (0, 256, np.uint8), "s8": (-128, 128, np.int8)}


def codes(dtype, shape):
    low, high, kind = CODES[dtype]
    return RNG.integers(low, high, shape, dtype=kind)


def extremes(dtype, shape):
    low, high, kind = CODES[dtype]
    return RNG.choice(np.array([low, high - 1], kind), shape)


def both(pipe, inputs, **options):
    expected = tw.SingleThreadExecutor("reference").run(pipe, inputs)
    for threads in (1, 2):
        plan = tw.TilingExecutor(threads, **options).compile(pipe)
        for _ in range(2):  # the second run goes through the launcher
            found = plan.run(inputs)
            for name, array in expected.items():
                assert_array_equal(found[name], array, strict=True)
    return plan


def layer(a_dtype, b, m=None, k=None, stages=3, **zero_points):
    pipe = tw.Pipeline("layer")
    a = pipe.input("a", a_dtype, (m or "M", k or b.shape[0]))
    y = tw.ops.gemm(a, pipe.constant("b", b), **zero_points)
    n = b.shape[1]
    if stages > 0:
        y = tw.ops.add(y, RNG.integers(-3000, 3000, n).astype(np.int32))
    if stages > 1:
        y = tw.ops.requantize(y, multiplier=(RNG.random(n) * 2e-3).astype(np.float32), zero_point=3, dtype="u8")
    if stages > 2:
        y = tw.ops.relu(y)
    pipe.output("y", y)
    return pipe


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
@pytest.mark.parametrize(("a_dtype", "b_dtype"), list(itertools.product(CODES, CODES)))
def test_every_pair_of_types_and_zero_points_equals_the_reference(a_dtype, b_dtype, stages):
    b = codes(b_dtype, (65, 70))
    for a_zero, b_zero in itertools.product((None, 7), (None, 5)):
        pipe = layer(a_dtype, b, stages=stages, a_zero_point=a_zero, b_zero_point=b_zero)
        both(pipe, {"a": codes(a_dtype, (37, 65))})


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (0, 5, 4), (3, 0, 4), (8, 8, 8), (5, 3, 1), (127, 511, 63), (2, 1000, 300)]
)
@pytest.mark.parametrize("stages", [0, 3])
def test_sizes_from_nothing_up_equal_the_reference(shape, stages):
    m, k, n = shape
    both(layer("u8", codes("s8", (k, n)), stages=stages, a_zero_point=128), {"a": codes("u8", (m, k))})


@pytest.mark.parametrize("m", [1, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("n", [15, 16, 17, 63, 64, 65, 129])
def test_sizes_around_the_tile_equal_the_reference_at_extreme_values(m, n):
    both(layer("u8", extremes("s8", (66, n)), a_zero_point=255), {"a": extremes("u8", (m, 66))})


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512", "avx512_vnni"])
def test_every_instruction_set_gives_the_same_bytes(isa):
    from tilework.kernels.cpu import isa as levels

    if isa not in [level.name for level in levels.available()]:
        pytest.skip(f"this processor has no {isa}")
    for stages in (0, 3):
        both(layer("u8", extremes("s8", (130, 40)), stages=stages), {"a": extremes("u8", (9, 130))}, isa=isa)
        both(layer("s8", codes("u8", (33, 40)), stages=stages, b_zero_point=9), {"a": codes("s8", (9, 33))}, isa=isa)


def test_bias_requantize_and_relu_become_one_step():
    plan = both(layer("u8", codes("s8", (20, 30))), {"a": codes("u8", (4, 20))})
    assert [step.kernel.name for step in plan.lowered.pipe.steps] == ["gemm_panels"]
    assert "fused: gemm_u8s8s32 + add_s32 + requantize_s32u8 + relu_u8" in plan.explain()


def test_nothing_is_fused_when_asked():
    plan = both(layer("u8", codes("s8", (20, 30))), {"a": codes("u8", (4, 20))}, fuse=False)
    assert len(plan.lowered.pipe.steps) == 4


def test_a_tapped_value_is_what_it_is_without_fusion():
    pipe = layer("u8", codes("s8", (20, 30)))
    a = codes("u8", (4, 20))
    plan = tw.TilingExecutor(2).compile(pipe)
    tapped = plan.run({"a": a}, tap=["gemm_u8s8s32.acc"])
    weights = pipe.values["b"].data
    assert_array_equal(tapped["gemm_u8s8s32.acc"], a.astype(np.int32) @ weights.astype(np.int32), strict=True)
    assert_array_equal(tapped["y"], plan.run({"a": a})["y"], strict=True)


def test_zero_points_of_every_row_and_column_may_come_at_run_time():
    pipe = tw.Pipeline("dynamic")
    a, b = pipe.input("a", "u8", ("M", "K")), pipe.input("b", "s8", ("K", "N"))
    za, zb = pipe.input("za", "u8", ("M",)), pipe.input("zb", "s8", ("N",))
    pipe.output("y", tw.ops.gemm(a, b, a_zero_point=za, b_zero_point=zb))
    for m, k, n in ((7, 30, 40), (1, 5, 70)):
        inputs = {"a": codes("u8", (m, k)), "b": codes("s8", (k, n)), "za": codes("u8", m), "zb": codes("s8", n)}
        both(pipe, inputs)


BIG_A, BIG_B = codes("u8", (200, 300)), codes("s8", (300, 300))
A_VIEWS = {
    "rows apart": BIG_A[:26:2, :70],
    "columns apart": BIG_A[:13, :140:2],
    "transposed": BIG_A[:70, :13].T,
    "rows reversed": BIG_A[:13, :70][::-1],
    "columns reversed": BIG_A[:13, :70][:, ::-1],
    "one row for all": np.broadcast_to(BIG_A[:1, :70], (13, 70)),
    "odd start": BIG_A[5:18, 3:73],
}
B_VIEWS = {
    "columns apart": BIG_B[:70, :180:2],
    "transposed": BIG_B[:90, :70].T,
    "reversed": BIG_B[:70, :90][::-1, ::-1],
    "one row for all": np.broadcast_to(BIG_B[:1, :90], (70, 90)),
}


@pytest.mark.parametrize("a", A_VIEWS.values(), ids=A_VIEWS)
@pytest.mark.parametrize("b", B_VIEWS.values(), ids=B_VIEWS)
def test_views_give_what_copies_give(a, b):
    pipe = tw.Pipeline("views")
    pipe.output("y", tw.ops.gemm(pipe.input("a", "u8", a.shape), pipe.input("b", "s8", b.shape), a_zero_point=3))
    found = tw.TilingExecutor(2).run(pipe, {"a": a, "b": b})["y"]
    assert_array_equal(found, (a.astype(np.int32) - 3) @ b.astype(np.int32), strict=True)


def test_the_callers_output_may_have_any_strides():
    b = codes("s8", (70, 90))
    pipe = layer("u8", b, stages=0)
    a = codes("u8", (13, 70))
    plan = tw.TilingExecutor(2).compile(pipe)
    for view in (
        lambda o: o[:13, :90],
        lambda o: o[:26:2, :90],
        lambda o: o[:13, :180:2],
        lambda o: o[:90, :13].T,
        lambda o: o[:13, :90][::-1, ::-1],
    ):
        whole = np.full((100, 200), -7, np.int32)
        out = view(whole)
        untouched = np.full((100, 200), True)
        view(untouched)[...] = False
        assert plan.run({"a": a}, out={"y": out})["y"] is out
        assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32), strict=True)
        assert (whole[untouched] == -7).all()


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((2, 3, 9, 33), (33, 20)),
        ((2, 3, 9, 33), (3, 33, 20)),
        ((3, 9, 33), (2, 1, 33, 20)),
        ((9, 33), (4, 33, 20)),
        ((0, 9, 33), (33, 20)),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_leading_dimensions_broadcast(a_shape, b_shape, constant):
    a, b = codes("u8", a_shape), codes("s8", b_shape)
    pipe = tw.Pipeline("batched")
    weights = pipe.constant("b", b) if constant else pipe.input("b", "s8", b_shape)
    pipe.output("y", tw.ops.gemm(pipe.input("a", "u8", a_shape), weights, a_zero_point=3))
    both(pipe, {"a": a} if constant else {"a": a, "b": b})


@pytest.mark.parametrize(
    "tile", [{"m": 8, "n": 64}, {"mr": 4, "nr": 16}, {"kc": 64}, {"mr": 3, "mc": 5, "kc": 4, "m": 12}]
)
def test_no_tile_changes_a_bit(tile):
    pipe = layer("u8", codes("s8", (300, 150)))
    plan = both(pipe, {"a": codes("u8", (37, 300))}, tile={"gemm_u8s8s32": tile})
    if tile.keys() - {"m", "n"}:
        assert "as asked" in plan.explain()


def test_a_residual_and_what_follows_it_are_fused():
    pipe = tw.Pipeline("residual")
    x = pipe.input("x", "u8", ("M", 32), quant=tw.QuantParams(0.02, 120))
    w = pipe.constant("w", codes("s8", (32, 32)), quant=tw.QuantParams(0.01, dtype="s8"))
    to = tw.QuantParams(0.05, 110)
    h = tw.ops.requantize(tw.ops.gemm(x, w), to=to)
    pipe.output("y", tw.ops.relu(tw.ops.add(h, x, to=tw.QuantParams(0.07, 100))))
    plan = both(pipe, {"x": codes("u8", (21, 32))})
    assert [step.kernel.name for step in plan.lowered.pipe.steps] == ["gemm_panels"]


def test_fixed_point_and_other_code_types_are_fused():
    for dtype, arithmetic in itertools.product(("u8", "s8", "u16", "s16", "s32"), ("float", "fixed")):
        pipe = tw.Pipeline("codes")
        acc = tw.ops.gemm(pipe.input("a", "u8", ("M", 40)), codes("s8", (40, 33)), a_zero_point=128)
        if arithmetic == "fixed":
            multiplier, shift = RNG.integers(2**30, 2**31 - 1, 33).astype(np.int32), np.full(33, -9, np.int32)
            y = tw.ops.requantize(acc, multiplier=multiplier, shift=shift, arithmetic="fixed", dtype=dtype)
        else:
            y = tw.ops.requantize(acc, multiplier=(RNG.random(33) * 0.01).astype(np.float32), dtype=dtype)
        pipe.output("y", y)
        plan = both(pipe, {"a": codes("u8", (5, 40))})
        assert len(plan.lowered.pipe.steps) == 1


def test_a_sum_that_may_pass_int32_is_refused_with_the_depth_that_fits():
    b = np.full((70_000, 2), -128, np.int8)
    pipe = tw.Pipeline("deep")
    pipe.output("y", tw.ops.gemm(pipe.input("a", "u8", ("M", 70_000)), b))
    for executor in (tw.TilingExecutor(1), tw.SingleThreadExecutor()):
        with pytest.raises(tw.errors.AccumulatorOverflow, match="about K = 65793 would fit"):
            executor.run(pipe, {"a": np.zeros((1, 70_000), np.uint8)})


def test_a_deep_sum_that_fits_is_exact():
    a, b = codes("u8", (2, 100_000)), codes("s8", (100_000, 3))
    pipe = tw.Pipeline("deep")
    pipe.output("y", tw.ops.gemm(pipe.input("a", "u8", ("M", 100_000)), b))
    found = tw.TilingExecutor(2).run(pipe, {"a": a})["y"]
    assert_array_equal(found, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32), strict=True)


def test_other_row_counts_compile_nothing():
    from tilework.kernels import forge

    plan = tw.TilingExecutor(2).compile(layer("u8", codes("s8", (64, 80))))
    plan.run({"a": codes("u8", (50, 64))})
    before = forge.Counts.compiled
    for m in (1, 2, 3, 7, 64, 1000):
        plan.run({"a": codes("u8", (m, 64))})
    assert forge.Counts.compiled == before


def test_a_tile_of_an_axis_is_named_after_the_users_step():
    pipe = layer("u8", codes("s8", (64, 150)))
    plan = tw.TilingExecutor(2, tile={"gemm_u8s8s32": {"m": 8, "n": 64}}).compile(pipe)
    plan.run({"a": codes("u8", (37, 64))})
    assert "tiles 5 x 3" in plan.explain()
    with pytest.raises(tw.errors.ArgumentError, match="tile= names step 'gemm'; the plan has"):
        tw.TilingExecutor(2, tile={"gemm": {"m": 8}}).compile(pipe)


def two_layers(width, hidden):
    pipe = tw.Pipeline("mlp")
    x = pipe.input("x", "u8", ("M", width))
    h = tw.ops.gemm(x, codes("s8", (width, hidden)), a_zero_point=128)
    h = tw.ops.relu(tw.ops.requantize(h, multiplier=1e-3, zero_point=10, dtype="u8"))
    y = tw.ops.gemm(h, codes("s8", (hidden, width)), a_zero_point=10)
    pipe.output("y", tw.ops.requantize(y, multiplier=1e-3, zero_point=100, dtype="u8"))
    return pipe


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_chain_of_layers_runs_tile_by_tile_with_the_same_bytes(threads):
    pipe, x = two_layers(32, 1024), codes("u8", (1003, 32))
    apart = tw.TilingExecutor(threads, chain=False).compile(pipe)
    chained = tw.TilingExecutor(threads).compile(pipe)
    assert_array_equal(chained.run({"x": x})["y"], apart.run({"x": x})["y"], strict=True)
    assert "one stage" in chained.explain()
    assert "one stage" not in apart.explain()
    (bound,) = chained._bindings.values()
    assert bound.binding.arena_bytes == 0


def test_the_memory_of_a_chain_does_not_grow_with_the_rows():
    plan = tw.TilingExecutor(2).compile(two_layers(32, 1024))
    sizes = []
    for m in (2_000, 20_000):
        plan.run({"x": codes("u8", (m, 32))})
        binding = next(reversed(plan._bindings.values())).binding
        sizes.append((binding.arena_bytes, binding.local_bytes))
    assert sizes[0][0] == sizes[1][0] == 0
    assert max(local for _, local in sizes) < 2**20  # bytes a thread, whatever the number of rows


def test_branches_that_cannot_be_cut_run_at_once_with_the_same_bytes():
    pipe = tw.Pipeline("branches")
    x = pipe.input("x", "u8", ("M", 2000))
    for n in range(3):
        w = pipe.constant(f"w{n}", codes("s8", (2000, 40)))
        pipe.output(f"y{n}", tw.ops.requantize(tw.ops.gemm(x, w), multiplier=1e-4, dtype="u8"))
    inputs = {"x": codes("u8", (3, 2000))}
    plan = both(pipe, inputs)
    assert "at once with" in plan.explain()
    for threads in (2, 3):
        found = tw.TilingExecutor(threads).run(pipe, inputs)
        for name, array in tw.TilingExecutor(1).run(pipe, inputs).items():
            assert_array_equal(found[name], array, strict=True)


def test_folding_scales_is_asked_for_and_its_difference_counted():
    pipe = tw.Pipeline("float")
    acc = tw.ops.gemm(pipe.input("a", "u8", ("M", 64)), codes("s8", (64, 32)), a_zero_point=128)
    real = tw.ops.dequantize(acc, scale=(RNG.random(32) * 1e-3 + 1e-4).astype(np.float32), zero_point=0)
    pipe.output("y", tw.ops.quantize(real, scale=0.013, zero_point=7, dtype="u8"))
    inputs = {"a": codes("u8", (500, 64))}
    exact = both(pipe, inputs)
    assert exact.difference(inputs) == {"y": (0, 16_000, 0.0)}
    plan = tw.TilingExecutor(1, numerics="folded").compile(pipe)
    differing, size, largest = plan.difference(inputs)["y"]
    assert size == 16_000
    assert differing < 100
    assert largest <= 1
    assert "folded into one scale" in plan.explain()
    assert len(plan.lowered.pipe.steps) == 1
    with pytest.raises(tw.errors.ArgumentError, match="'exact' or 'folded'"):
        tw.TilingExecutor(1, numerics="fast")


def test_pictures_show_the_steps_as_written_and_as_run():
    import xml.etree.ElementTree as ET

    pipe = layer("u8", codes("s8", (20, 30)))
    plan = tw.TilingExecutor(1).compile(pipe)
    assert "requantize_s32u8" in pipe.mermaid()
    assert "requantize_s32u8" not in plan.mermaid()
    assert "gemm_panels" in plan.mermaid()
    for picture, boxes in ((pipe.svg(), 6), (plan.svg(), 3)):
        root = ET.fromstring(picture)
        assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == boxes


def test_a_profile_is_saved_as_a_chrome_trace(tmp_path):
    import json

    plan = tw.TilingExecutor(1, fuse=False).compile(layer("u8", codes("s8", (20, 30))))
    profile = plan.profile({"a": codes("u8", (4, 20))})
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["layer", *(step.step for step in profile.steps)]


def test_a_step_that_joins_two_products_is_fused_into_one_of_them():
    rng = np.random.default_rng(5)
    pipe = tw.Pipeline("gated")
    x = pipe.input("x", "f32", ("M", 64))
    gate, up = (tw.ops.gemm(x, rng.standard_normal((64, 48)).astype(np.float32)) for _ in range(2))
    pipe.output("y", tw.ops.mul(tw.ops.silu(gate), up))
    data = {"x": rng.standard_normal((9, 64)).astype(np.float32)}
    plan = tw.TilingExecutor(1).compile(pipe)
    assert "computed when the plan was made" not in plan.explain()
    assert not any("elementwise" in step.name for step in plan.lowered.pipe.steps)
    plain = tw.TilingExecutor(1, fuse=False).run(pipe, data)["y"]
    np.testing.assert_array_equal(plan.run(data)["y"], plain)
