"""Pipelines in files: what is kept, what is refused, and that a file runs nothing."""

import contextlib
import io
import json
import math
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor
from tilework.kernels import ops
from tilework.primitives import storage
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import FileFormatError, PipelineError, ShapeMismatch
from tilework.primitives.kernel import ArgSpec
from tilework.primitives.pipeline import Pipeline
from tilework.primitives.quantization import QuantParams


@storage.stored_as("test_storage.keep")
@dataclass(frozen=True)
class Keep:
    """A kernel with a field of every kind that a file keeps."""

    number: float = 1.5
    words: tuple = ("a", None, True)
    table: object = None
    quant: object = None
    options: object = None

    name = "keep"

    def signature(self):
        return (ArgSpec("x", None, shape=("N",)), ArgSpec("y", "=x", "write", shape=("N",)))

    def execute(self, ctx):
        ctx.write("y")[...] = ctx.read("x")


class Unstored(Keep):
    def __init__(self):
        pass


def half(v, scale):
    return np.rint(np.float32(v) * scale) + math.floor(0.5)


ALPHA = 0.5


def with_a_global(v):
    return v * ALPHA


def with_an_object(v):
    return v if isinstance(v, Keep) else v + 1


def network():
    rng = np.random.default_rng(0)
    pipe = Pipeline("network")
    x = pipe.input("x", "u8", ("M", 8), quant=QuantParams(0.5, 3))
    w = pipe.constant(
        "w", rng.integers(-9, 9, (8, 5), np.int8), quant=QuantParams(np.full(5, 0.25, "f4"), 0, "s8", axis=1)
    )
    acc = ops.gemm(x, w)
    s = pipe.argument("s", "f32")
    y = ops.requantize(acc, multiplier=s, zero_point=3, dtype="u8")
    total = pipe.state("total", "s32", ("M", 5), 7)
    pipe.update(total, ops.add(total, acc))
    pipe.output("y", y)
    pipe.output("acc", acc)
    return pipe


def saved(pipe, **how):
    file = io.BytesIO()
    pipe.save(file, **how)
    return file.getvalue()


def loaded(content, **how):
    return Pipeline.load(io.BytesIO(content), **how)


def graph_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read("pipeline.json")), {
            name: archive.read(name) for name in archive.namelist() if name != "pipeline.json"
        }


def packed(graph, arrays, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("pipeline.json", graph if isinstance(graph, str) else json.dumps(graph))
        for name, content in arrays.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_a_pipeline_comes_back_as_it_was_saved(tmp_path):
    pipe = network()
    pipe.save(tmp_path / "network.tw")
    again = Pipeline.load(tmp_path / "network.tw")
    assert repr(again) == repr(pipe)
    assert again.edges == pipe.edges
    assert again.kernels == pipe.kernels
    for name, value in pipe.values.items():
        assert again.values[name].quant == value.quant
    assert not again.values["w"].data.flags.writeable
    feed = {"x": np.arange(24, dtype=np.uint8).reshape(3, 8), "s": 0.01}
    run = [SingleThreadExecutor("reference").run(p, feed) for p in (pipe, again)]
    for name in pipe.outputs:
        assert_array_equal(run[0][name], run[1][name], strict=True)
    assert saved(again) == saved(pipe)


def test_every_kind_of_field_comes_back():
    kernel = Keep(
        number=float("nan"),
        words=("a", None, True, 2**70, (1.5, ())),
        table=np.arange(6, dtype=np.float16).reshape(2, 3),
        quant=QuantParams(np.array([0.5, 0.25], np.float32), np.array([1, 2], np.uint8), axis=0),
        options={"a": 1, "b": ("c",)},
    )
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(kernel, x=pipe.input("x", "bf16", ("N",))))
    again = loaded(saved(pipe)).kernels[0]
    assert math.isnan(again.number)
    assert again.words == kernel.words
    assert again.quant == kernel.quant
    assert again.options == kernel.options
    assert_array_equal(again.table, kernel.table, strict=True)


@pytest.mark.parametrize("dtype", ["u8", "s8", "f16", "bf16", "f64", "bool", "f8e4m3fn", "u4", "s2", "f4e2m1fn"])
def test_constants_of_every_type_keep_their_bytes(dtype):
    buffer = Buffer.empty((3, 5), dtype)
    raw = buffer.view_mut().view(np.uint8)
    raw[...] = np.arange(raw.size).reshape(raw.shape) % (2 if dtype == "bool" else 256)
    pipe = Pipeline("p")
    pipe.output("c", pipe.constant("c", buffer))
    again = loaded(saved(pipe))
    assert again.values["c"].dtype == dtype
    assert again.values["c"].shape == (3, 5)
    assert again.values["c"].data.tobytes() == pipe.values["c"].data.tobytes()


def test_size_checks_that_composition_left_come_back():
    inner = Pipeline("inner")
    inner.output("y", inner.add(Keep(), x=inner.input("x", "f32", ("N",))))
    inner.output("z", inner.input("z", "f32", ("N",)))
    outer = Pipeline("outer")
    for name, value in outer.call(inner, x=outer.input("x", "f32", ("P",)), z=outer.input("z", "f32", ("Q",))).items():
        outer.output(name, value)
    again = loaded(saved(outer))
    assert [(str(a), str(b)) for a, b, _ in again.constraints] == [(str(a), str(b)) for a, b, _ in outer.constraints]
    with pytest.raises(ShapeMismatch):
        again.check_sizes({"P": 3, "Q": 4})


# Functions --------------------------------------------------------------------------------------------------------


def mapped(fn, **scalars):
    pipe = Pipeline("mapped")
    pipe.output("y", ops.map(fn, pipe.input("x", "s32", ("M", 4)), dtype="f32", **scalars))
    return pipe


def test_functions_are_kept_as_source_only_when_asked_and_made_again_only_when_asked():
    pipe = mapped(half, scale=0.5)
    with pytest.raises(PipelineError, match="holds the function 'half'; save with functions='source'"):
        saved(pipe)
    content = saved(pipe, functions="source")
    with pytest.raises(FileFormatError, match="carries the source of function 'half', which loading would run"):
        loaded(content)
    again = loaded(content, functions="run")
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    for p in (pipe, again):
        found = SingleThreadExecutor("reference").run(p, {"x": x})["y"]
        assert_array_equal(found, np.rint(x.astype(np.float32) * np.float32(0.5)), strict=True)
    for how in ("yes", None, True):
        with pytest.raises(ValueError, match="'refuse' or"):
            pipe.save(io.BytesIO(), functions=how)
        with pytest.raises(ValueError, match="'refuse' or"):
            loaded(content, functions=how)


def enclosed():
    factors = np.array([3, 5], np.float32)

    def inside(v):
        return with_a_global(v) * factors[1]

    return inside


def test_numbers_tables_and_functions_that_a_function_names_are_kept_with_it():
    pipe = mapped(enclosed())
    again = loaded(saved(pipe, functions="source"), functions="run")
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    for p in (pipe, again):
        found = SingleThreadExecutor("reference").run(p, {"x": x})["y"]
        assert_array_equal(found, x.astype(np.float32) * np.float32(2.5), strict=True)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda v: v + 1, "plain function, made by def"),
        (with_an_object, "'with_an_object', which uses Keep, type, from outside of it"),
        (eval("lambda v: v"), "whose source Python cannot find"),
    ],
    ids=["lambda", "object", "no source"],
)
def test_a_function_whose_text_is_not_all_of_it_is_refused_when_saving(fn, says):
    @storage.stored_as("test_storage.holds")
    @dataclass(frozen=True)
    class Holds(Keep):
        fn: object = None

    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Holds(fn=fn), x=pipe.input("x", "f32", ("N",))))
    with pytest.raises(PipelineError, match=says):
        saved(pipe, functions="source")


def test_what_a_file_cannot_keep_is_named():
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Unstored(), x=pipe.input("x", "f32", ("N",)), step_name="odd"))
    with pytest.raises(PipelineError, match="step 'odd' is a Unstored, which cannot be saved"):
        saved(pipe)
    pipe = Pipeline("p")
    pipe.output("y", pipe.add(Keep(options={1, 2}), x=pipe.input("x", "f32", ("N",))))
    with pytest.raises(PipelineError, match=r"field 'options' holds set \{1, 2\}, which a file cannot keep"):
        saved(pipe)
    with pytest.raises(PipelineError, match=r"'test_storage\.keep' is taken by Keep"):
        storage.stored_as("test_storage.keep")(Unstored)


# Damaged and hostile files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x03\x04", b"PK\x05\x06" + bytes(18)], ids=["empty", "text", "zip", "no members"]
)
def test_what_is_no_pipeline_is_refused(content):
    with pytest.raises(FileFormatError):
        loaded(content)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Pipeline.load(tmp_path / "none.tw")
    with pytest.raises(IsADirectoryError):
        Pipeline.load(tmp_path)


def test_a_truncated_file_is_refused_wherever_it_ends():
    content = saved(network())
    for end in range(0, len(content) - 1, 37):
        with pytest.raises(FileFormatError):
            loaded(content[:end])


def test_a_damaged_byte_gives_a_pipeline_or_a_format_error():
    content = saved(network())
    rng = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        try:
            assert isinstance(loaded(bytes(damaged)), Pipeline)
        except FileFormatError:
            pass


def test_damaged_json_gives_a_pipeline_or_a_format_error():
    graph, arrays = graph_of(saved(network()))
    text = json.dumps(graph)
    rng = np.random.default_rng(1)
    for _ in range(300):
        at = int(rng.integers(len(text)))
        damaged = text[:at] + str(rng.choice(list('0-1"[]{},:eN'))) + text[at + int(rng.integers(0, 3)) :]
        try:
            assert isinstance(loaded(packed(damaged, arrays)), Pipeline)
        except FileFormatError:
            pass


JUNK = [None, True, -1, 10**30, 1e999, "", "x", "__import__('os').abort()", [], {}, [1], {"array": "w"}, {"tuple": 3}]


def test_any_value_in_place_of_any_other_gives_a_pipeline_or_a_format_error():
    graph, arrays = graph_of(saved(network()))

    def places(x, path=()):
        yield path
        items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
        for key, inner in items:
            yield from places(inner, (*path, key))

    def replaced(path, junk):
        copy = json.loads(json.dumps(graph))
        if not path:
            return junk
        at = copy
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = junk
        return copy

    for n, path in enumerate(places(graph)):
        for junk in JUNK[n % 3 :: 3]:
            try:
                assert isinstance(loaded(packed(replaced(path, junk), arrays)), Pipeline)
            except FileFormatError:
                pass


def edited(change, pipe=None, **how):
    graph, arrays = graph_of(saved(pipe or network(), **how))
    change(graph, arrays)
    return packed(graph, arrays)


def member(name, x):
    file = io.BytesIO()
    np.lib.format.write_array(file, x, allow_pickle=True)
    return {name: file.getvalue()}


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was run",))


HOSTILE = {
    "another version": (lambda g, a: g.update(format=99), "format 99; this version reads 1"),
    "an unknown step": (
        lambda g, a: g["steps"][0].update(kind="os.system"),
        "step of kind 'os.system', which no package",
    ),
    "fields that the kernel lacks": (lambda g, a: g["steps"][0]["fields"].update(evil=1), "evil"),
    "a cycle": (lambda g, a: g["steps"][0]["inputs"].update(a="add.y"), "add.y|KeyError"),
    "a constant of fewer elements": (lambda g, a: _value(g, "w").update(shape=[800, 5]), "is said"),
    "a packed constant of fewer bytes": (
        lambda g, a: _value(g, "w").update(dtype="u4", shape=[8, 500], quant=None),
        "is said",
    ),
    "an array of another size": (lambda g, a: _value(g, "w")["data"].update(shape=[8, 6]), "needs another number"),
    "an array of negative sizes": (lambda g, a: _value(g, "w")["data"].update(shape=[-8, -5]), "needs another number"),
    "no data": (lambda g, a: _value(g, "w").pop("data"), "constant 'w' has no data"),
    "data for an input": (lambda g, a: _value(g, "x").update(data=1), "which only constants and states have"),
    "a state of another shape": (
        lambda g, a: _value(g, "total").update(shape=[3, 3], data=_value(g, "w")["data"]),
        "state",
    ),
    "a pickle": (lambda g, a: a.update(member("array_0.npy", np.array([Bomb()], object))), "array"),
    "an array that says it is huge": (lambda g, a: a.update({"array_0.npy": _huge()}), "10{12}"),
    "an endless size": (lambda g, a: _value(g, "x").update(shape=["((a+b+c+d)**8)**8", 8]), "terms"),
    "a deep size": (
        lambda g, a: _value(g, "x").update(shape=["(" * 900 + "M" + ")" * 900, 8]),
        "cannot be read|characters",
    ),
    "two values of one name": (lambda g, a: g["values"].append(_value(g, "x")), "the name 'x' is taken"),
    "a value of no kind": (lambda g, a: _value(g, "x").update(kind="output"), "value 'x' has kind 'output'"),
    "an output of nothing": (lambda g, a: g.update(outputs=[["y", "nothing"]]), "nothing"),
}


def _value(graph, name):
    return next(v for v in graph["values"] if v["name"] == name)


def _huge():
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (10**12,)})
    return file.getvalue() + b"x"


@pytest.mark.parametrize(("change", "says"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused(change, says):
    with pytest.raises(FileFormatError, match=says):
        loaded(edited(change))


def test_compressed_members_are_refused_and_so_are_members_larger_than_the_file():
    graph, arrays = graph_of(saved(network()))
    with pytest.raises(FileFormatError, match="compressed members"):
        loaded(packed(graph, arrays, zipfile.ZIP_DEFLATED))
    content = bytearray(packed(graph, arrays))
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (2**31 - 1).to_bytes(4, "little")  # uncompressed size
    with pytest.raises(FileFormatError):
        loaded(bytes(content))


@pytest.mark.parametrize("evil", ["open({0!r}, 'w')", "1]; open({0!r}, 'w'); x = [0", "0\nopen({0!r}, 'w')\n"])
def test_text_in_the_fields_of_a_step_is_never_run(tmp_path, evil):
    flag = tmp_path / "ran"
    text = evil.format(str(flag))
    pipe = Pipeline("p")
    x = pipe.input("x", "s32", ("M", 4))
    x = ops.clip(x, lo=np.zeros(4, np.int32), hi=9)
    x = ops.requantize(x, multiplier=np.full(4, 0.5, np.float32), dtype="s8")
    pipe.output("y", ops.dequantize(x, scale=0.5))
    graph, arrays = graph_of(saved(pipe))

    def leaves(x, path=()):
        if isinstance(x, (dict, list)):
            for key, inner in x.items() if isinstance(x, dict) else enumerate(x):
                yield from leaves(inner, (*path, key))
        else:
            yield path

    feed = {"x": np.arange(8, dtype=np.int32).reshape(2, 4)}
    for n, step in enumerate(graph["steps"]):
        for path in list(leaves(step["fields"])):
            copy = json.loads(json.dumps(graph))
            at = copy["steps"][n]["fields"]
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = text
            try:
                again = loaded(packed(copy, arrays))
            except FileFormatError:
                continue
            for backend in ("reference", "cpu"):
                with contextlib.suppress(Exception):
                    SingleThreadExecutor(backend).run(again, feed)
                assert not flag.exists(), (step["kind"], path)


def test_source_that_does_not_define_its_function_is_refused():
    content = saved(mapped(half, scale=0.5), functions="source")
    graph, arrays = graph_of(content)
    text = json.dumps(graph)
    for wrong in ("def other(v): return v", "def half(", "1 / 0", ""):
        held = next(
            f for step in graph["steps"] for f in step["fields"].values() if isinstance(f, dict) and "source" in f
        )
        changed = text.replace(json.dumps(held["source"]), json.dumps(wrong))
        assert changed != text
        with pytest.raises(FileFormatError, match="does not define it"):
            loaded(packed(changed, arrays), functions="run")


def test_an_array_of_another_npy_version_is_refused(tmp_path):
    pipe = Pipeline("p")
    y = ops.add(pipe.input("x", "f32", ("M", 3)), pipe.constant("c", np.float32([1, 2, 3])))
    pipe.output("y", y)
    pipe.save(tmp_path / "p.tw")
    with zipfile.ZipFile(tmp_path / "p.tw") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "q.tw", "w") as archive:
        for name, content in members.items():
            if name.endswith(".npy"):
                data = io.BytesIO()
                np.lib.format.write_array(data, np.load(io.BytesIO(content)), version=(2, 0))
                content = data.getvalue()
            archive.writestr(name, content)
    with pytest.raises(FileFormatError, match=r"version \(2, 0\); 1.0 is written"):
        Pipeline.load(tmp_path / "q.tw")


def test_steps_that_packages_announce_are_imported_when_one_is_not_known(monkeypatch):
    asked = []
    monkeypatch.setattr(storage, "load_steps", lambda: asked.append("now"))
    assert storage._kernel_class(next(iter(storage._KERNELS))) is not None
    assert asked == []
    with pytest.raises(FileFormatError, match="a step of kind 'of nobody', which no package here defines"):
        storage._kernel_class("of nobody")
    assert asked == ["now"]


def test_a_new_process_knows_every_kernel_class(tmp_path):
    root = Path(storage.__file__).parents[1]
    files = [path for room in ("primitives", "kernels", "executors") for path in (root / room).rglob("*.py")]
    written = {name for path in files for name in re.findall(r'^@stored_as\("(\w+)"\)', path.read_text(), re.MULTILINE)}
    assert len(written) > 60
    pipe = Pipeline("p")
    pipe.output(
        "y", ops.group_norm(pipe.input("x", "f32", (2, 4, 3)), 2, np.ones(4, np.float32), np.zeros(4, np.float32))
    )
    pipe.save(tmp_path / "p.tw")
    code = (
        f"import sys; sys.path.insert(0, {str(root.parent)!r})\n"
        f"from tilework import Pipeline; Pipeline.load({str(tmp_path / 'p.tw')!r})\n"
        "from tilework.primitives import storage; print(*storage._KERNELS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert written - set(done.stdout.split()) == set()
