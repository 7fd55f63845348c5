"""Train the small network of `tilework demo` and write bench/data/digits.npz.

    pip install scikit-learn
    python examples/train_digits.py

The network is 64-96-48-10 with ReLU, trained in plain NumPy float32 on three quarters of scikit-learn's handwritten
digits. Everything is seeded: the same machine writes the same weights every time. Another BLAS may add in another
order and so differ in the last bits, which is why the trained weights are shipped and not retrained by the demo.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

WIDTHS = (64, 96, 48, 10)
TARGET = Path(__file__).resolve().parent.parent / "bench" / "data" / "digits.npz"


def load():
    """Return the images, uint8 (1797, 64) in 0..16, and their labels, uint8 (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.data.astype(np.uint8), digits.target.astype(np.uint8)


def split(labels, test_share=0.25, seed=0):
    """Cut into train and test indices, each digit in its share (a stratified split). Both ascend."""
    rng = np.random.default_rng(seed)
    test = []
    for digit in range(10):
        members = rng.permutation(np.flatnonzero(labels == digit))
        test.extend(members[: round(test_share * members.size)])
    test = np.sort(np.array(test, np.int32))
    return np.setdiff1d(np.arange(labels.size, dtype=np.int32), test), test


def forward(x, layers):
    """Return the activations of every layer, x first and the logits last; x is float32 (M, 64) in 0..1."""
    activations = [x]
    for i, (w, b) in enumerate(layers):
        h = activations[-1] @ w + b
        activations.append(np.maximum(h, 0) if i < len(layers) - 1 else h)
    return activations


def train(x, labels, epochs=60, batch=64, rate=2e-3, decay=0.1, seed=0):
    """Minimise cross-entropy with AdamW and a cosine rate. Returns [(w (K, N), b (N,)), ...] in float32."""
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(0, np.sqrt(2 / k), (k, n)).astype(np.float32), np.zeros(n, np.float32))
        for k, n in itertools.pairwise(WIDTHS)
    ]
    moments = [[np.zeros_like(p) for p in layer] for layer in layers]
    squares = [[np.zeros_like(p) for p in layer] for layer in layers]
    one_hot = np.eye(10, dtype=np.float32)[labels]
    step, steps = 0, epochs * -(-len(x) // batch)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            activations = forward(x[rows], layers)
            logits = activations[-1] - activations[-1].max(1, keepdims=True)
            p = np.exp(logits)
            grad = (p / p.sum(1, keepdims=True) - one_hot[rows]) / np.float32(len(rows))
            grads = []
            for (w, _), h in zip(reversed(layers), reversed(activations[:-1]), strict=True):
                grads.append((h.T @ grad, grad.sum(0)))
                grad = (grad @ w.T) * (h > 0)
            step += 1
            lr = np.float32(rate * 0.5 * (1 + np.cos(np.pi * step / steps)))
            for layer, m, v, g in zip(layers, moments, squares, reversed(grads), strict=True):
                for i in range(2):
                    m[i] += np.float32(0.1) * (g[i] - m[i])
                    v[i] += np.float32(0.001) * (g[i] * g[i] - v[i])
                    mean = m[i] / np.float32(1 - 0.9**step)
                    spread = np.sqrt(v[i] / np.float32(1 - 0.999**step)) + np.float32(1e-8)
                    layer[i][...] -= lr * (mean / spread + np.float32(decay) * layer[i] * (i == 0))
    return layers


def main():
    parser = argparse.ArgumentParser(description="Train the digits network of `tilework demo`.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()

    images, labels = load()
    train_index, test_index = split(labels)
    x = images.astype(np.float32) / np.float32(16)
    layers = train(x[train_index], labels[train_index], options.epochs)
    for name, index in (("train", train_index), ("test", test_index)):
        right = forward(x[index], layers)[-1].argmax(1) == labels[index]
        print(f"{name:5}  {right.mean():.2%} of {index.size} images")

    weights = {f"{kind}{i}": value for i, layer in enumerate(layers) for kind, value in zip("wb", layer, strict=True)}
    np.savez_compressed(
        options.out,
        images=images,
        labels=labels,
        train=train_index.astype(np.uint16),
        test=test_index.astype(np.uint16),
        **weights,
    )
    print(f"wrote {options.out}, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
