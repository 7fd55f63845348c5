"""`tilework demo`: one small network on handwritten digits, in every scheme and on every executor there is.

A new scheme, executor or peer is one more Contender; the table, the timing and the comparison stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilework as tw
from tilework.executors import registry
from tilework.primitives.errors import ArgumentError

from .progress import track

Logits = NDArray[np.float32]
Classifier = Callable[[NDArray[np.uint8]], Logits]

PIXEL_SCALE = np.float32(1 / 16)  # a pixel of 16 is full ink, 1.0
BUDGET_S = 0.04  # of timing, a row
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Digits:
    """The images, their labels and the float network.

    images  uint8 (M, 64), 0..16     labels  uint8 (M,)     train, test  indices
    layers  (w float32 (K, N), b float32 (N,)) of each layer; ReLU between layers
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    train: NDArray[np.uint16]
    test: NDArray[np.uint16]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    @classmethod
    def load(cls) -> Digits:
        with (resources.files("tilework.bench.data") / "digits.npz").open("rb") as file:
            data = np.load(file)
            layers = tuple((data[f"w{i}"], data[f"b{i}"]) for i in range(3))
            return cls(data["images"], data["labels"], data["train"], data["test"], layers)

    def activations(self, images: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """Return the float network's values after every layer, the input first and the logits last."""
        values = [images * PIXEL_SCALE]
        for i, (w, b) in enumerate(self.layers):
            h = values[-1] @ w + b
            values.append(h if i == len(self.layers) - 1 else np.maximum(h, np.float32(0)))
        return values


def int8_network(digits: Digits, per_channel: bool) -> tuple[tw.Pipeline, float]:
    """Return the network with int8 weights and uint8 activations, and its bits a weight, scales included.

    Weights are symmetric: scale = max|w| / 127, one for a tensor or one for each output channel. Activations lie
    between 0 and the largest value of the training images, so their zero point is 0, and requantizing to uint8 is a
    ReLU as well.
    """
    ranges = [float(values.max()) for values in digits.activations(digits.images[digits.train])]
    pipe = tw.Pipeline("digits_int8_channel" if per_channel else "digits_int8_tensor")
    x = pipe.input("x", "u8", ("M", 64))
    x_scale = PIXEL_SCALE
    scales = weights = 0
    for i, (w, b) in enumerate(digits.layers):
        w_scale = np.abs(w).max(axis=0 if per_channel else None) / np.float32(127)
        scales, weights = scales + w_scale.size, weights + w.size
        acc_scale = x_scale * w_scale
        w_codes = pipe.constant(f"w{i}", np.rint(w / w_scale).astype(np.int8))
        b_codes = pipe.constant(f"b{i}", np.rint(b / acc_scale).astype(np.int32))
        acc = tw.ops.add(tw.ops.gemm(x, w_codes), b_codes)
        if i == len(digits.layers) - 1:
            pipe.output("logits", tw.ops.dequantize(acc, scale=acc_scale))
        else:
            x_scale = np.float32(ranges[i + 1] / 255)
            x = tw.ops.requantize(acc, multiplier=acc_scale / x_scale, dtype="u8")
    return pipe, 8 + 32 * scales / weights


def scheme_network(digits: Digits, name: str) -> tuple[tw.Pipeline, float]:
    """Return the network with weights in a scheme, multiplied on integers, and its bits a weight."""
    pipe = tw.Pipeline(f"digits_{name}")
    x = tw.ops.dequantize(pipe.input("x", "u8", ("M", 64)), scale=PIXEL_SCALE)
    nbytes = weights = 0
    for i, (w, b) in enumerate(digits.layers):
        q = tw.schemes.get(name).quantize(w.T)
        nbytes, weights = nbytes + q.nbytes, weights + w.size
        x = tw.ops.add(tw.ops.linear(x, q, compute="int8"), b)
        x = x if i == len(digits.layers) - 1 else tw.ops.relu(x)
    pipe.output("logits", x)
    return pipe, 8 * nbytes / weights


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    scheme       what the weights are
    executor     what runs the network: one of tilework's, or another library
    weight_bits  bits a weight, its share of the scales included
    prepare      makes a function from images, uint8 (M, 64), to logits, float32 (M, 10)
    exact        whether the logits must equal those of the scheme's first contender, byte for byte
    """

    scheme: str
    executor: str
    weight_bits: float
    prepare: Callable[[], Classifier]
    exact: bool = True


SCHEMES: dict[str, Callable[[Digits], tuple[tw.Pipeline, float]]] = {
    "int8 per tensor": lambda digits: int8_network(digits, per_channel=False),
    "int8 per channel": lambda digits: int8_network(digits, per_channel=True),
    "int4_g32": partial(scheme_network, name="int4_g32"),
}


def executors() -> dict[str, Callable[[], Any]]:
    """Return what makes each executor of the table; the tiled one on one thread and on all of them; then installed ones."""
    threads = sorted({1, tw.TilingExecutor().threads})
    return {
        "reference": lambda: tw.SingleThreadExecutor(backend="reference"),
        "single": lambda: tw.SingleThreadExecutor(),
        **{f"tiled x{n}": partial(tw.TilingExecutor, threads=n) for n in threads},
        **{name: registry.find(name) for name in registry.announced_names()},
    }


def contenders(digits: Digits, more: Sequence[str] = ()) -> list[Contender]:
    """Return every row of the table, the float network first; `more` are names of further schemes that are shipped."""
    rows = [Contender("float32", "numpy", 32.0, lambda: lambda images: digits.activations(images)[-1], exact=False)]
    builders = dict(SCHEMES)
    for name in more:
        builders[name] = partial(scheme_network, name=name)
    for scheme, build in builders.items():
        pipe, bits = build(digits)
        rows += [Contender(scheme, name, bits, partial(on_executor, pipe, make)) for name, make in executors().items()]
    return rows


def _named(contender: Contender) -> str:
    return f"{contender.scheme} on {contender.executor}"


def on_executor(pipe: tw.Pipeline, make_executor: Callable[[], Any]) -> Classifier:
    """Compile a pipeline once and return a function that runs it on any number of images."""
    executor = make_executor()
    plans: dict[tuple[int, ...], Any] = {}

    def classify(images: NDArray[np.uint8]) -> Logits:
        plan = plans.get(images.shape) or plans.setdefault(images.shape, executor.compile(pipe, {"x": images.shape}))
        return plan.run({"x": images})["logits"]

    return classify


def compare(more: Sequence[str] = ()) -> dict[str, Any]:
    """Run every contender on the test images, `more` schemes among them. Returns the rows of the table, ready for JSON.

    accuracy            share of the test images whose largest logit is at the label
    largest_difference  from the float network's logits, over all images and digits
    same_bytes          whether the logits equal those of the scheme's first row; None where they need not
    """
    digits = Digits.load()
    images, labels = digits.images[digits.test], digits.labels[digits.test]
    expected = digits.activations(images)[-1]
    rows: list[dict[str, Any]] = []
    first: dict[str, bytes] = {}
    for contender in track(contenders(digits, more), "comparing", _named):
        classify = contender.prepare()
        logits = classify(images)
        same = logits.tobytes() == first.setdefault(contender.scheme, logits.tobytes())
        rows.append(
            {
                "scheme": contender.scheme,
                "executor": contender.executor,
                "weight_bits": round(contender.weight_bits, 3),
                "accuracy": float((logits.argmax(1) == labels).mean()),
                "largest_difference": float(np.abs(logits - expected).max()),
                "us_per_image": best_s(lambda: classify(images)) / len(images) * 1e6,  # noqa: B023
                "same_bytes": same if contender.exact else None,
            }
        )
    return {
        "images": len(images),
        "float_accuracy": rows[0]["accuracy"],
        "rows": rows,
        "same_bytes": all(row["same_bytes"] is not False for row in rows),
    }


def best_s(call: Callable[[], object]) -> float:
    """Return the shortest of the runs that fit the budget, at least three: other programs only ever add time."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < BUDGET_S:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def classify_image(n: int) -> dict[str, Any]:
    """Return test image `n`, its label, and its scores in every scheme, ready for JSON."""
    digits = Digits.load()
    if not 0 <= n < len(digits.test):
        raise ArgumentError(f"there is no test image {n}; there are 0 to {len(digits.test) - 1}")
    image = digits.images[digits.test[n]]
    scores: dict[str, list[float]] = {}
    fastest = {contender.scheme: contender for contender in contenders(digits)}  # the last of its scheme
    for contender in track(list(fastest.values()), "classifying", _named):
        scores[contender.scheme] = softmax(contender.prepare()(image[None])[0]).tolist()
    return {"image": n, "label": int(digits.labels[digits.test[n]]), "pixels": image.tolist(), "scores": scores}


def softmax(logits: Logits) -> NDArray[np.float64]:
    """Return exp(logits) as shares of their sum."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def show_table(result: dict[str, Any]) -> None:
    """Print the result of `compare` for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"handwritten digits, 64-96-48-10, {result['images']} test images"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("scheme", no_wrap=True)
    table.add_column("executor", no_wrap=True)
    for name in ("bits a\nweight", "accuracy", "vs\nfloat", "largest\ndiff.", "us an\nimage"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("same\nbytes", justify="center", no_wrap=True)
    last = None
    for row in result["rows"]:
        if row["scheme"] != last:
            table.add_section()
        table.add_row(
            row["scheme"] if row["scheme"] != last else "",
            row["executor"],
            f"{row['weight_bits']:.2f}",
            f"{row['accuracy']:.2%}",
            f"{100 * (row['accuracy'] - result['float_accuracy']):+.2f}",
            f"{row['largest_difference']:.3f}",
            f"{row['us_per_image']:.2f}",
            {True: "[green]yes[/]", False: "[red]NO[/]", None: ""}[row["same_bytes"]],
        )
        last = row["scheme"]
    console = Console()
    console.print(table)
    if result["same_bytes"]:
        console.print("[green]In each scheme, all executors gave the same bytes.[/]")
    else:
        console.print("[red]In the rows marked NO, the bytes differ from those of the scheme's first row.[/]")


def show_image(result: dict[str, Any]) -> None:
    """Print the result of `classify_image`: the digit, and each scheme's scores as bars."""
    from rich.console import Console
    from rich.table import Table

    pixels = result["pixels"]
    art = "\n".join("".join(SHADES[p * 4 // 16] * 2 for p in pixels[row : row + 8]) for row in range(0, 64, 8))
    console = Console(highlight=False)
    console.print(f"test image {result['image']}, labelled [bold]{result['label']}[/]\n\n{art}\n")
    table = Table()
    table.add_column("digit", justify="right")
    for scheme in result["scores"]:
        table.add_column(scheme, min_width=20)
    for digit in range(10):
        scores = [scores[digit] for scores in result["scores"].values()]
        style = "bold" if digit == result["label"] else None
        table.add_row(str(digit), *(f"{score:6.1%} {'#' * round(12 * score)}" for score in scores), style=style)
    console.print(table)
