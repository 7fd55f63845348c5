"""`tilework bench peers llm`: one layer of a language model at the sizes of 1B and 8B classes, random weights.

decode    one token: bytes of the weights a second, against reading memory in the same rounds
prefill   256 tokens: operations of the products a second, against the probed peak of integer dot products

`layer` is the whole decoder layer, attention and norms too; `products` its seven matrices alone. Bytes are those that
are moved: codes, and scales as they are packed; those of the file are given beside them. Where ggml is installed
(ggml-python) its seven mul_mat of the same blocks run in the same rounds, after a comparison of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...executors.tiling import TilingExecutor
from ...frontends.gguf import TYPES, RawTensor, encoded
from ...frontends.llm import Config, Model, Weights
from ...frontends.llm.weights import linear
from ...kernels.cpu import isa
from ...kernels.cpu.gemm.packing import SLACK
from ...primitives.errors import ArgumentError, Unsupported
from ...primitives.pipeline import Pipeline
from .. import timing
from ..machine import doctor, peak
from . import gemm, ggml

Array = np.ndarray[Any, Any]
CLASSES = {"1b": (2048, 8192, 32, 8, 64), "8b": (4096, 14336, 32, 8, 128)}  # width, hidden, heads, kv_heads, depth
FORMATS = ("Q4_0", "Q8_0", "Q4_K", "MXFP4")
TOKENS = 256  # of a prompt
BEFORE = 16  # tokens in the cache when one is decoded
VOCABULARY = 32
ROWS = 256  # that differ; the others repeat them
DECODE, PREFILL = 0.8, 0.6  # of memory's bandwidth, of the peak
LONG_BLOCK = 0.05  # seconds


@dataclass(frozen=True)
class Options:
    classes: tuple[str, ...] = ("1b", "8b")
    formats: tuple[str, ...] = FORMATS
    threads: tuple[int, ...] = (1,)
    tokens: tuple[int, ...] = (1, TOKENS)
    rounds: int = 9
    isa: str | None = None

    def __post_init__(self) -> None:
        for what, given, known in (("class", self.classes, CLASSES), ("format", self.formats, TYPES)):
            for name in given:
                if name not in known:
                    raise ArgumentError(f"there is no {what} {name!r}; there is {', '.join(known)}")
        if 0 in (*self.tokens, *self.threads):
            raise ArgumentError("tokens and threads are 1 or more")


@dataclass
class Row:
    """share: of bandwidth or peak, with its range over rounds; wanted: where a bar was set."""

    model: str
    format: str
    what: str
    tokens: int
    threads: int
    ms: float
    rate: float  # GB/s moved, or GOPS
    share: float
    low: float
    high: float
    wanted: float | None
    file_share: float | None  # of the bandwidth, by bytes of the file
    peer_ms: float | None
    ratio: float | None


def config_of(name: str, layers: int) -> Config:
    width, hidden, heads, kv_heads, depth = CLASSES[name]
    return Config("llama", layers, width, hidden, heads, kv_heads, depth, depth, 10000.0, 1.0, 1e-5, 4096)


def matrices(config: Config) -> dict[str, tuple[int, int]]:
    """(N, K) of a layer's seven matrices."""
    c = config
    return {
        "attn_q": (c.heads * c.depth, c.width),
        "attn_k": (c.kv_heads * c.depth, c.width),
        "attn_v": (c.kv_heads * c.depth, c.width),
        "attn_output": (c.width, c.heads * c.depth),
        "ffn_gate": (c.hidden, c.width),
        "ffn_up": (c.hidden, c.width),
        "ffn_down": (c.width, c.hidden),
    }


def blocks(name: str, qtype: str, shape: tuple[int, int], seed: int) -> RawTensor:
    """A matrix of a type: encoded numbers, or random blocks with sensible scales where nothing encodes them."""
    rng, (n, k) = np.random.default_rng(seed), shape
    rows = min(n, ROWS)
    try:
        raw = encoded(name, rng.standard_normal((rows, k), np.float32) * np.float32(k**-0.5), qtype)
    except Unsupported:
        kind = TYPES[qtype]
        data = rng.integers(0, 256, (rows, k // kind.block, kind.nbytes), dtype=np.uint8)
        scale = np.array([k**-0.5 / 32], np.float16).view(np.uint8)
        for at in _SCALES[qtype]:
            data[:, :, at : at + 2] = scale
        raw = RawTensor(name, kind, (rows, k), data.reshape(rows, -1))
    return RawTensor(name, raw.type, shape, np.ascontiguousarray(np.resize(raw.data, (n, raw.data.shape[1]))))


_SCALES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82), "Q3_K": (108,)}  # float16 of a block


def tensors(config: Config, qtype: str) -> dict[str, RawTensor]:
    """All tensors of a model with random weights and a small vocabulary."""
    table = np.random.default_rng(0).standard_normal((VOCABULARY, config.width), np.float32)
    names = [f"blk.{n}.{part}_norm.weight" for n in range(config.layers) for part in ("attn", "ffn")]
    found = {name: encoded(name, np.ones(config.width), "F32") for name in [*names, "output_norm.weight"]}
    found["token_embd.weight"] = encoded("token_embd.weight", table, "F32")
    for n in range(config.layers):
        for seed, (part, shape) in enumerate(matrices(config).items()):
            name = f"blk.{n}.{part}.weight"
            found[name] = blocks(name, qtype, shape, 7 * n + seed)
    return found


class _Products:
    """The seven matrices of each layer, each with rows of its own K."""

    def __init__(self, weights: Weights, config: Config, executor: TilingExecutor) -> None:
        self.pipe = Pipeline("products")
        inputs = {
            k: self.pipe.input(f"x{k}", "f32", ("M", k)) for k in sorted({k for _, k in matrices(config).values()})
        }
        for n in range(config.layers):
            for part, shape in matrices(config).items():
                name = f"blk.{n}.{part}.weight"
                self.pipe.output(name, linear(inputs[shape[1]], weights.matrix(name, shape), "int8"))
        self.plan = executor.compile(self.pipe)

    @property
    def moved(self) -> int:
        """Bytes of all matrices as products read them."""
        steps = self.plan.lowered.pipe.steps
        return sum(v.data.nbytes - SLACK for step in steps for slot, v in step.inputs.items() if slot == "packed")

    def call(self, rows: int) -> tuple[Callable[[], Any], dict[str, Array], dict[str, Array]]:
        """A bound call, its inputs and its outputs."""
        rng = np.random.default_rng(1)
        inputs = {
            name: rng.standard_normal((rows, v.shape[1]), np.float32) for name, v in self.pipe.of_kind("input").items()
        }
        out = {name: np.empty((rows, v.shape[1]), np.float32) for name, v in self.pipe.outputs.items()}
        return self.plan.bind(inputs, out=out), inputs, out


def measure(options: Options) -> dict[str, Any]:
    """Everything that the options ask for, as one JSON-ready dictionary."""
    before = doctor.load()
    work = [(c, f, t) for t in options.threads for c in options.classes for f in options.formats]
    rows: list[Row] = []
    with gemm.progress(len(work)) as step:
        for name, qtype, threads in work:
            step(f"{name} {qtype} {threads} thread{'s' * (threads > 1)}")
            rows += _time(name, qtype, threads, options)
    return {
        "machine": gemm.machine(options, before),  # type: ignore[arg-type]
        "peers": ggml.version(),
        "rows": [asdict(row) for row in rows],
    }


def _time(name: str, qtype: str, threads: int, options: Options) -> list[Row]:
    once = sum(n * k for n, k in matrices(config_of(name, 1)).values()) * TYPES[qtype].nbytes / TYPES[qtype].block
    config = config_of(name, max(1, int(np.ceil(2.5 * gemm.l3_bytes() / once))))  # no weight is found in a cache
    given = tensors(config, qtype)
    executor = TilingExecutor(threads=threads)
    weights = Weights(given, name=name, executor=executor)
    products = _Products(weights, config, executor)
    session = Model(config, weights, None, executor=executor).session()
    raws = [given[f"blk.{n}.{part}.weight"] for n in range(config.layers) for part in matrices(config)]
    nbytes, in_file = float(products.moved), float(sum(raw.nbytes for raw in raws))
    per_token = 2.0 * sum(float(np.prod(raw.shape)) for raw in raws)
    rows = []
    for tokens in options.tokens:
        position = BEFORE if tokens == 1 else 0
        session.position = 0
        session.feed([0] * BEFORE)

        def layer(
            position: int = position, ids: tuple[int, ...] = tuple(n % VOCABULARY for n in range(tokens))
        ) -> None:
            session.position = position
            session.feed(ids)

        call, inputs, out = products.call(tokens)
        ceiling = peak.read(256 << 20, threads) if tokens == 1 else peak.dot(isa.select().name, threads)
        if ceiling is None:
            raise Unsupported(f"no peak is known of integer dot products at the level {isa.select().name}")
        calls: dict[str, Callable[[], Any]] = {"layer": layer, "products": call, "ceiling": ceiling.call}
        other = ggml.products(raws, inputs, threads)
        if other is not None:
            call()
            _compare(other(), out, qtype)
            calls["ggml"] = other
        block = timing.BLOCK if threads == 1 else LONG_BLOCK
        rounds = options.rounds if tokens == 1 else max(2, options.rounds // 3)  # of seconds each
        times = timing.paired(calls, rounds, block, pause=threads > 1)
        rate = ceiling.work / times.rounds["ceiling"]
        for what in ("layer", "products"):
            seconds = times.rounds[what]
            amount = nbytes if tokens == 1 else per_token * tokens
            share = timing.Ratio.of(amount / seconds / rate)
            bar = DECODE if tokens == 1 else PREFILL if qtype in ("Q4_0", "Q8_0") else None
            peer = what == "products" and other is not None
            rows.append(
                Row(
                    model=f"{name}, {config.layers} layer{'s' * (config.layers > 1)}",
                    format=qtype,
                    what=what,
                    tokens=tokens,
                    threads=threads,
                    ms=float(np.median(seconds)) * 1e3,
                    rate=amount / float(np.median(seconds)) / 1e9,
                    share=share.median,
                    low=share.low,
                    high=share.high,
                    wanted=bar,
                    file_share=float(np.median(in_file / seconds / rate)) if tokens == 1 else None,
                    peer_ms=times.median("ggml") * 1e3 if peer else None,
                    ratio=times.ratio("products", "ggml").median if peer else None,
                )
            )
    return rows


def _compare(theirs: dict[str, Array], ours: dict[str, Array], qtype: str) -> None:
    """Both quantize x to 8 bits, in blocks of 32 or 256: results agree to the percent, or no figure means anything."""
    for name, right in theirs.items():
        error = np.sqrt(np.square(ours[name] - right).mean() / np.square(right).mean())
        if not error < 0.03:
            raise ArgumentError(f"{qtype}: products here and ggml's differ by {error:.1%} at {name}")


def show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from ..terminal import wide_console
    from . import report

    console = wide_console()
    console.print(report.machine_line(result["machine"]))
    console.print(f"peer: {result['peers'] or 'none (pip install ggml-python)'}")
    table = Table()
    for column in (
        "model",
        "type",
        "what",
        "tokens",
        "threads",
        "ms",
        "GB/s or GOPS",
        "share",
        "bar",
        "by file bytes",
        "ggml ms",
        "ratio",
    ):
        table.add_column(column, justify="left" if column in ("model", "type", "what") else "right", no_wrap=True)
    for r in result["rows"]:
        table.add_row(
            r["model"], r["format"], r["what"], str(r["tokens"]), str(r["threads"]), f"{r['ms']:.3g}", f"{r['rate']:.4g}",
            f"{r['share']:.0%} ({r['low']:.0%}-{r['high']:.0%})", "" if r["wanted"] is None else f"{r['wanted']:.0%}",
            "" if r["file_share"] is None else f"{r['file_share']:.0%}",
            "" if r["peer_ms"] is None else f"{r['peer_ms']:.3g}", "" if r["ratio"] is None else f"{r['ratio']:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print("share: of reading memory (1 token), of the probed peak of integer dot products (256).")
