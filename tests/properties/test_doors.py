"""Every public door has a property test: the table says which, and one test here hands wrong things to all of them.

A door is a name that users call: what `tilework` exports, the functions of its modules, the methods of what it hands
out, the commands. A new one fails `test_every_door_has_a_property_test` until it is in the table.
"""

import fnmatch
import inspect
import re
import warnings
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tilework as tw
from tilework.bench import cli
from tilework.primitives.errors import TileworkError

TESTS = Path(__file__).parents[1]

# The first pattern that fits a door names its test. Those of EXAMPLES are held by examples, and the reason is said.
PROPERTIES = {
    "ops.*": "properties/test_values_at_doors.py::test_every_step_keeps_its_meaning_under_drawn_operands",
    "eager.*": "properties/test_values_at_doors.py::test_eager_steps_are_numpy_s_sums",
    "Buffer*": "primitives/test_buffer.py::test_overlap_agrees_with_the_bytes",
    "Arena*": "primitives/test_arena.py::test_buffers_that_live_together_share_no_byte",
    "LayoutSpec*": "primitives/test_layout.py::test_internal_overlap_is_found_exactly",
    "Axis*": "primitives/test_kernel.py::test_an_affine_interval_holds_exactly_what_its_range_needs",
    "Affine*": "primitives/test_kernel.py::test_an_affine_interval_holds_exactly_what_its_range_needs",
    "IndexSpace*": "primitives/test_kernel.py::test_an_affine_interval_holds_exactly_what_its_range_needs",
    "ArgSpec*": "properties/test_doors.py::test_wrong_arguments_are_refused_by_name",
    "Edge*": "properties/test_doors.py::test_wrong_arguments_are_refused_by_name",
    "DType*": "primitives/test_dtypes.py::test_packing_does_not_depend_on_the_integer_it_came_in",
    "dtypes.*": "primitives/test_dtypes.py::test_packing_does_not_depend_on_the_integer_it_came_in",
    "QuantParams*": "primitives/test_quantization.py::test_dequantizing_and_transposing_commute",
    "Pipeline*": "properties/test_files_at_doors.py::test_a_pipeline_comes_back_from_its_file_and_gives_the_same",
    "debug.*": "properties/test_files_at_doors.py::test_a_pipeline_comes_back_from_its_file_and_gives_the_same",
    "Plan.*": "properties/test_values_at_doors.py::test_a_plan_takes_any_view_on_any_executor",
    "TilingExecutor*": "properties/test_values_at_doors.py::test_a_plan_takes_any_view_on_any_executor",
    "SingleThreadExecutor*": "properties/test_values_at_doors.py::test_a_plan_takes_any_view_on_any_executor",
    "executor": "properties/test_values_at_doors.py::test_a_plan_takes_any_view_on_any_executor",
    "OwnedState*": "properties/test_values_at_doors.py::test_states_go_on_however_runs_are_divided",
    "Stream*": "properties/test_values_at_doors.py::test_a_stream_does_not_depend_on_its_batches",
    "Scheme*": "properties/test_values_at_doors.py::test_quantized_tensors_are_cut_joined_and_multiplied_alike",
    "QuantizedTensor*": "properties/test_values_at_doors.py::test_quantized_tensors_are_cut_joined_and_multiplied_alike",
    "schemes.*": "properties/test_values_at_doors.py::test_quantized_tensors_are_cut_joined_and_multiplied_alike",
    "fitting.*": "properties/test_values_at_doors.py::test_statistics_do_not_depend_on_how_data_is_cut",
    "gguf.*": "properties/test_files_at_doors.py::test_gguf_files_come_back",
    "safetensors.*": "properties/test_files_at_doors.py::test_safetensors_files_come_back",
    "onnx.*": "properties/test_files_at_doors.py::test_onnx_codes_are_those_of_the_formula",
    "arrow.*": "properties/test_files_at_doors.py::test_arrow_columns_come_back",
    "llm.*": "properties/test_files_at_doors.py::test_a_tokenizer_takes_any_text",
    "$ *": "properties/test_doors.py::test_commands_refuse_in_words",
}
EXAMPLES = {
    "CudaExecutor*": "a device, or minutes of compiling: tests/executors/test_cuda_executor.py",
    "DaskExecutor*": "a cluster has to start: tests/executors/test_dask.py",
    "torch.*": "torch is a large extra: tests/frontends/test_torch.py",
    "factory.*": "for those who add kernels: tests/kernels/test_factory.py",
    "bench.*": "measures time: tests/bench",
    "errors.*": "classes without arguments of their own: tests/executors/test_bad_input.py",
}
SAVING = {"save"}  # writes what it is given a path for
HEAVY = {"Scheme.check", "Scheme.report", "Scheme.certify"}  # seconds each


def functions(module):
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        found = getattr(module, name)
        inside = getattr(found, "__module__", module.__name__).startswith("tilework")
        if callable(found) and inside:
            yield name, found


def objects():
    """What users are handed, whose methods are doors as well."""
    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.relu(pipe.input("x", "f32", ("M", 4))))
    return {
        "Pipeline": pipe,
        "Plan": tw.SingleThreadExecutor("reference").compile(pipe),
        "QuantizedTensor": tw.schemes.get("int4_g32").quantize(np.ones((4, 64), np.float32)),
        "Scheme": tw.schemes.get("int4_g32"),
        "QuantParams": tw.QuantParams(0.1, 3, "u8"),
        "Buffer": tw.Buffer.from_array(np.ones((2, 3), np.float32)),
        "LayoutSpec": tw.Buffer.from_array(np.ones((2, 3), np.float32)).layout,
        "DType": tw.dtypes.get("u4"),
        "SingleThreadExecutor": tw.SingleThreadExecutor("reference"),
    }


def commands(app, prefix="$ tilework"):
    for command in app.registered_commands:
        yield f"{prefix} {command.name or command.callback.__name__.replace('_', '-')}"
    for group in app.registered_groups:
        name = group.name or group.typer_instance.info.name
        yield from commands(group.typer_instance, f"{prefix} {name}")


def doors():
    """{door: what is called}; commands are their words."""
    found = {}
    for name in tw.__all__:
        if name in ("torch", "eager", "__version__"):
            continue
        thing = getattr(tw, name)
        if inspect.ismodule(thing):
            found |= {f"{name}.{inner}": function for inner, function in functions(thing)}
        else:
            found[name] = thing
    for name, thing in objects().items():
        methods = [m for m in dir(thing) if not m.startswith("_") and callable(getattr(thing, m))]
        found |= {f"{name}.{m}": getattr(thing, m) for m in methods}
    return found | {name: name for name in commands(cli.app)}


DOORS = doors()


def test_every_door_has_a_property_test():
    missing = []
    for door in DOORS:
        held = next((test for pattern, test in PROPERTIES.items() if fnmatch.fnmatchcase(door, pattern)), None)
        if held is None and not any(fnmatch.fnmatchcase(door, pattern) for pattern in EXAMPLES):
            missing.append(door)
    assert missing == []
    for test in PROPERTIES.values():
        path, name = test.split("::")
        text = (TESTS / path).read_text(encoding="utf-8")
        assert re.search(rf"@given\([^@]*?\)\n(@[^\n]*\n)*def {name}\(", text, re.DOTALL), test


def test_what_the_table_names_is_there():
    for pattern in [*PROPERTIES, *EXAMPLES]:
        if pattern in ("eager.*", "torch.*", "Edge*"):  # made when they are asked for; needs torch; no methods
            continue
        assert any(fnmatch.fnmatchcase(door, pattern) for door in DOORS), pattern
    for reason in EXAMPLES.values():
        assert (TESTS.parent / reason.split(": ")[-1]).exists(), reason


# Wrong arguments -------------------------------------------------------------------------------------------------------


def given_values():
    """A pipeline's values, and things that are none."""
    pipe = tw.Pipeline("p")
    values = [
        pipe.input("u", "u8", ("M", 4)),
        pipe.input("f", "f32", ("M", 4)),
        pipe.input("i", "f32", (1, 3, 8, 8)),
        pipe.argument("a", "f32"),
        pipe.state("t", "f32", ("M", 4), 0.0),
        tw.Pipeline("else").input("z", "u8", ("M", 4)),
    ]
    return values, pipe


THINGS = [
    None, True, 0, 1, -1, 3, 70000, 2**62, 2**70, -(2**70), 0.5, float("nan"), float("inf"), -0.0, "", "u8", "f32", "x",
    "row", "half_even", "a\0b", b"ab", (), (0,), (1, 2), (-1,), (2**40,), ("M", 4), [], [[1, 2], [3]], {}, {"x": 1},
    set(), slice(None), ..., range(3), len, np.float32, np.dtype("u1"), np.dtype("O"), np.zeros(0, np.float32),
    np.float32(1.5), np.uint8(200), np.ones((2, 4), np.uint8), np.ones((4, 3), np.float32), np.array(["a"]),
    np.ones(4, np.complex64), np.array(1.0), np.ones((1,) * 40), np.full(4, np.nan, np.float32),
    np.array([None]),
]  # fmt: skip
# What Python and NumPy say themselves of things of another kind than the door takes.
OTHER_KIND = (
    "truth value",
    "inhomogeneous",
    "could not convert string",
    "invalid literal",
    "convert float NaN",
    "convert float inf",
)


def refused(door, error):
    """Whether an error is one that a door may give for arguments that are wrong."""
    if isinstance(error, (TileworkError, TypeError, AttributeError, OSError, MemoryError)):
        return True
    return isinstance(error, (ValueError, OverflowError)) and any(text in str(error) for text in OTHER_KIND)


CALLED = sorted(
    door for door, thing in DOORS.items() if callable(thing) and door.split(".")[-1] not in SAVING and door not in HEAVY
    and not door.startswith(("bench.", "factory.", "CudaExecutor", "DaskExecutor", "errors."))
)  # fmt: skip


@settings(max_examples=400, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CALLED), st.data())
def test_wrong_arguments_are_refused_by_name(door, data):
    """A named error, or Python's own for a thing of another kind; never an index, an assertion, a crash."""
    target = DOORS[door]
    try:
        signature = inspect.signature(target)
    except ValueError:  # a class of C has none
        return
    values, _ = given_values()
    anything = st.sampled_from([*values, *THINGS] if door.startswith("ops.") else [*THINGS, values[1]])
    positional, named = [], {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += data.draw(st.lists(anything, max_size=2), label=name)
        elif parameter.kind is parameter.VAR_KEYWORD or (
            parameter.default is not parameter.empty and data.draw(st.booleans(), label=f"{name} left out")
        ):
            continue
        elif parameter.kind is parameter.KEYWORD_ONLY or named or parameter.default is not parameter.empty:
            named[name] = data.draw(anything, label=name)
        else:
            positional.append(data.draw(anything, label=name))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            target(*positional, **named)
        except Exception as error:
            if not refused(door, error):
                raise


@settings(max_examples=20)
@given(
    st.sampled_from([door for door in DOORS if door.startswith("$ ")]),
    st.lists(st.sampled_from(["--threads", "-1", "0", "x", "nothing.gguf", "\u2603", "--seed", "1e99"]), max_size=3),
    st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=3, max_size=9),
)
def test_commands_refuse_in_words(command, more, option):
    """An option that no command has: exit 2 and a line that names it, whatever else is on the command line."""
    from typer.testing import CliRunner

    result = CliRunner().invoke(cli.app, [*command.split()[2:], f"--no-{option}-such", *more])
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "such" in result.output or "No such" in result.output or "Usage" in result.output


def test_a_door_that_breaks_is_found():
    assert not refused("x", IndexError("list index out of range"))
    assert not refused("x", AssertionError())
    assert not refused("x", ZeroDivisionError())
    assert not refused("x", ValueError("matmul: Input operand 1 has a mismatch"))
    assert refused("x", tw.errors.ShapeMismatch("a is (2, 3)"))
    with pytest.raises(TileworkError):
        tw.fitting.rotate(np.ones((2, 3)), np.ones((4, 4)))
