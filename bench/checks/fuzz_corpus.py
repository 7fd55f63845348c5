"""What `fuzz` mutates: a small valid file of every kind that the library reads, and how each is read.

A file that is still one is used as well: tensors are decoded, pipelines run, so that what a reader lets pass is seen
to be whole. Reading raises what the library raises.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw

from ...executors.kept import files as plans
from ...executors.kept.image import CONSTANT, ENTRY, FUNCTION, TABLE, WORD, WORDS, Image
from ...executors.kept.plan import DAMAGE
from ...executors.kept.record import Facts, Port, Record
from ...executors.schemes import files as tensors
from ...executors.schemes import layouts
from ...kernels import bundle, cache, dispatch, tuning
from ...kernels.forge import Entry, Kept, Table
from ...kernels.machine_code import MachineCode

Read = Callable[[Path], Any]
NAME, CONTENT = "f" * 40, b"entry" * 40
MOST_ELEMENTS = 1 << 16  # of all values of a pipeline that is run: a larger one is only read
BLOCKS = {"Q4_0": (32, 18), "Q6_K": (256, 210), "IQ2_XS": (256, 74)}  # elements and bytes of a block


def corpus(folder: Path) -> dict[str, tuple[bytes, Read]]:
    """{kind: (a valid file, what reads one)}; kinds whose package is missing are left out."""
    found: dict[str, tuple[bytes, Read]] = {}
    cache.write(NAME, CONTENT, "source")
    found["cache entry"] = (cache.folder() / f"{NAME}.twk").read_bytes(), _read_entry
    bundle.write(folder / "b.zip")
    found["cache bundle"] = (folder / "b.zip").read_bytes(), _read_bundle
    record = kept_record().dumps()
    plans.write(f"{NAME}.run", record)
    found["kept plan"] = (plans.folder() / f"{NAME}.run").read_bytes(), lambda path: _read_plan(path, record)
    found["kept record"] = record, _read_record
    place = folder / "pipeline.tw"
    network().save(place)
    found["pipeline"] = place.read_bytes(), lambda path: run_small(tw.Pipeline.load(path))
    w = np.random.default_rng(1).standard_normal((6, 70), np.float32)
    for name in ("int4_g32_asym", "nf4_double"):
        for suffix in ("npz", "safetensors"):
            with contextlib.suppress(ImportError):
                place = folder / f"t.{suffix}"
                tensors.save(place, {"w": tw.schemes.get(name).quantize(w)})
                found[f"{suffix} {name}"] = place.read_bytes(), _read_tensors
    with contextlib.suppress(ImportError):
        found["onnx"] = onnx_model(), lambda path: run_small(tw.onnx.load(path))
        found["onnx sizes"] = onnx_sizes(), lambda path: run_small(tw.onnx.load(path))
    place = folder / "m.gguf"
    plain = {"a": w, "b": np.arange(8, dtype=np.float16)}
    tw.gguf.save(place, plain | blocks(), {"general.architecture": "llama", "n": [1, 2, 3]})
    found["gguf"] = place.read_bytes(), _read_gguf
    tw.gguf.save(place, *language_model())
    found["gguf model"] = place.read_bytes(), _read_model
    tw.safetensors.save(folder / "c.safetensors", checkpoint())
    found["safetensors checkpoint"] = (folder / "c.safetensors").read_bytes(), _read_checkpoint
    line = {"schema": tuning.SCHEMA, "kind": "tuned", "kernel": "gemm", "form": "ab", "threads": 1, "tile": {"m": 4}}
    line |= {"dtypes": ["u8", "s8"], "sizes": {"m": 64}, "source": "x", "compiler": "y"}
    found["tuning store"] = (json.dumps(line) + "\n").encode() * 3, _read_store
    return found


# Files ---------------------------------------------------------------------------------------------------------------


def network() -> tw.Pipeline:
    """A pipeline with constants, scales, a state, symbolic sizes and several steps."""
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("file")
    x = pipe.input("x", "u8", ("M", 12), quant=tw.QuantParams(0.1, 3, "u8"))
    acc = tw.ops.gemm(x, pipe.constant("w", rng.integers(-9, 9, (12, 5)).astype(np.int8)), a_zero_point=np.uint8(3))
    y = tw.ops.requantize(acc, multiplier=np.full(5, 0.01, np.float32), zero_point=7, dtype="u8")
    total = pipe.state("total", "s32", ("M", 5), 7)
    pipe.update(total, tw.ops.add(total, acc))
    pipe.output("y", tw.ops.softmax(tw.ops.dequantize(y, 0.5, 7)))
    pipe.output("z", tw.ops.transpose(y, [1, 0]))
    return pipe


def kept_record() -> Record:
    """What is kept of a plan of one step: every kind of address is in it, and machine code that is none."""
    ports = [Port("x", "x", "u8", (3, 4), "input", 3), Port("y", "y", "f32", (3, 4), "result", 4, ("x",))]
    facts = Facts((ports[0],), (ports[1],), ("x", "y"), 5, 128, 64, 64, True, 100.0)
    words = np.arange(dispatch.STAGE + dispatch.ROW + dispatch.FIX + 20)
    first = words.size - 20
    marks = [
        (first, WORDS, 0, WORD),
        (first + 1, ENTRY, 1, 0),
        (first + 2, FUNCTION, 0, 2),
        (first + 3, TABLE, 0, WORD),
    ]
    marks.append((first + 4, CONSTANT, 1, 3))
    shapes = ((1, dispatch.STAGE), (1, dispatch.ROW), (1, dispatch.FIX))
    codes = [Kept(f"source {n}", f"{n:040x}", MachineCode(bytes(300), f"f{n}", ("memcpy",))) for n in range(2)]
    constants: list[np.ndarray[Any, Any]] = [np.arange(40, dtype=np.int8), np.ones((3, 5), np.float32)]
    return Record(facts, Image(words, np.array(marks), shapes, ("step",)), [codes], [(0, 4)], constants)


def onnx_model() -> bytes:
    """A model with QDQ pairs, a convolution and shape arithmetic."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8),
        "s": np.float32(0.1),
        "z": np.uint8(3),
        "sw": np.full(4, 0.05, np.float32),
        "shape": np.array([0, -1]),
    }
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("DequantizeLinear", ["w", "sw"], ["dw"], {"axis": 0}),
        ("Conv", ["d", "dw"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Reshape", ["c", "shape"], ["r"], {}),
        ("Softmax", ["r"], ["y"], {"axis": -1}),
    ]
    return _model(nodes, constants)


def onnx_sizes() -> bytes:
    """A model whose few numbers say how large its constants are."""
    constants = {
        "n": np.array([2, 3]),
        "first": np.array(0),
        "last": np.array(6),
        "step": np.array(1),
        "one": np.ones(1, np.float32),
        "pads": np.array([0, 1, 0, 1]),
        "two": np.array([2, 1]),
    }
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("ConstantOfShape", ["n"], ["zeros"], {}),
        ("Range", ["first", "last", "step"], ["range"], {}),
        ("Reshape", ["range", "n"], ["counted"], {}),
        ("Cast", ["counted"], ["real"], {"to": 1}),
        ("Expand", ["one", "n"], ["ones"], {}),
        ("Add", ["zeros", "real"], ["sum"], {}),
        ("Mul", ["sum", "ones"], ["product"], {}),
        ("Tile", ["product", "two"], ["tiled"], {}),
        ("Pad", ["tiled", "pads"], ["padded"], {}),
        ("EyeLike", ["tiled"], ["eye"], {"dtype": 1}),
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "first"], ["rows"], {}),
        ("ReduceSum", ["padded"], ["all"], {"keepdims": 0}),
        ("ReduceSum", ["eye"], ["trace"], {"keepdims": 0}),
        ("Add", ["all", "trace"], ["both"], {}),
        ("Add", ["x", "both"], ["y"], {}),
    ]
    return _model(nodes, constants)


def _model(nodes: list[tuple[str, list[str], list[str], dict[str, Any]]], constants: dict[str, Any]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(op, taken, made, **attributes) for op, taken, made, attributes in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()  # type: ignore[no-any-return]


def blocks() -> dict[str, Any]:
    """Tensors of block types, whose bytes are those of a generator: every byte is some block."""
    from ...frontends.gguf.layout import TYPES
    from ...frontends.gguf.reader import RawTensor

    rng = np.random.default_rng(2)
    return {
        name.lower(): RawTensor(name.lower(), TYPES[name], (2, elements), rng.integers(0, 256, (2, nbytes), np.uint8))
        for name, (elements, nbytes) in BLOCKS.items()
    }


def language_model() -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and metadata of a decoder of one layer with eight tokens."""
    rng = np.random.default_rng(3)
    width, hidden = 8, 8
    shapes = {
        "token_embd.weight": (8, width),
        "output.weight": (8, width),
        "output_norm.weight": (width,),
        **{f"blk.0.{n}.weight": (width,) for n in ("attn_norm", "ffn_norm")},
        **{f"blk.0.attn_{n}.weight": (width, width) for n in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{n}.weight": (hidden, width) for n in ("gate", "up")},
        "blk.0.ffn_down.weight": (width, hidden),
    }
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": width,
        "llama.feed_forward_length": hidden,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.context_length": 32,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "<0x0A>"],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -0.5, -3.0, 0.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 6],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}, metadata


def checkpoint() -> dict[str, Any]:
    """Layers as GPTQ, AWQ and compressed-tensors lay them out."""
    w = np.random.default_rng(4).standard_normal((8, 64), np.float32)
    q = tw.schemes.get("int4_g32_asym").quantize(w)
    found: dict[str, Any] = {}
    for name, make in (("g", layouts.to_gptq), ("a", layouts.to_awq), ("c", layouts.to_compressed_tensors)):
        found |= {f"{name}.{part}": np.asarray(array) for part, array in make(q).items()}
    return found


# Readers -------------------------------------------------------------------------------------------------------------


def run_small(pipe: tw.Pipeline) -> None:
    """Run by the meaning of each step, on zeros and with two for what a run decides, where that is little."""
    values = [*pipe.values.values(), *(v for step in pipe.steps for v in step.outputs.values())]
    sizes = [[n if isinstance(n, int) else 2 for n in value.shape] for value in values]
    if sum(math.prod(shape) for shape in sizes) > MOST_ELEMENTS:
        return
    given = {
        name: np.zeros([n if isinstance(n, int) else 2 for n in value.shape], value.dtype.numpy)
        for name, value in pipe.values.items()
        if value.kind in ("input", "argument") and value.dtype is not None
    }
    tw.SingleThreadExecutor("reference").run(pipe, given)


def _read_tensors(path: Path) -> None:
    for tensor in tensors.load(path).values():
        if tensor.size < MOST_ELEMENTS:
            tensor.dequantize()


def _read_checkpoint(path: Path) -> None:
    for tensor in tw.safetensors.load(path).quantized({"bits": 4, "group_size": 32}).values():
        if tensor.size < MOST_ELEMENTS:
            tensor.dequantize()


def _read_gguf(path: Path) -> None:
    for tensor in tw.gguf.load(path).values():
        if tensor.type.plain is not None:
            tensor.numpy()
        elif math.prod(tensor.shape) < MOST_ELEMENTS:
            tensor.quantized().dequantize()


def _read_model(path: Path) -> None:
    from ...frontends import llm

    contents = tw.gguf.load(path)
    config = llm.Config.of(contents.metadata, path.name)
    if "tokenizer.ggml.model" in contents.metadata:
        tokenizer = llm.Tokenizer(contents.metadata, path.name)
        tokenizer.decode(tokenizer.encode("ab ba\n"))
    weights = llm.Weights(contents, None, path.name)
    pipe = llm.decoder(config, weights, compute="f32")
    llm.turns(config, weights, 4)
    pipe.validate()


def _read_store(path: Path) -> None:
    store = tuning.path("fuzz")
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(path.read_bytes())
    for line in tuning.lines("fuzz"):
        json.dumps(line)
    tuning._tuned.cache_clear()  # two files of one size in one tick of the clock are the same to it
    key = tuning.Key("gemm", "ab", "x", ("u8", "s8"), {"m": 64}, 1)
    tuning.find("fuzz", key)


def _read_entry(path: Path) -> None:
    (cache.folder() / f"{NAME}.twk").write_bytes(path.read_bytes())
    _check_entry()


def _read_bundle(path: Path) -> None:
    try:
        bundle.load(path)
    finally:
        _check_entry()


def _read_plan(path: Path, right: bytes) -> None:
    (plans.folder() / f"{NAME}.run").write_bytes(path.read_bytes())
    found = plans.read(f"{NAME}.run")
    if found is not None and found != right:
        raise AssertionError("a damaged plan was believed")


def _read_record(path: Path) -> None:
    """As far as one is read before its code is linked, as if its hash were right."""
    with contextlib.suppress(*DAMAGE):
        record = Record.loads(memoryview(path.read_bytes()))
        filler = Entry(0, "", "", False)
        tables = [Table(np.zeros(min(count, 99), np.int64), filler) for _, count in record.tables]
        record.image.program([0] * sum(map(len, record.groups)), tables, [0] * len(record.constants))


def _check_entry() -> None:
    found = cache.read(NAME)
    if found is not None and found != CONTENT:
        raise AssertionError("a damaged entry was believed")
