"""A language model from its file, step by step: what the file says, logits, text, and other formats of the same weights.

    python -m tilework.bench.llm.small small.gguf     # trains a small one, some minutes; or take any file of yours
    python examples/llama.py small.gguf int4_g32 nf4

`tw.llm.load` does everything from a file; here its parts are put together, so that each can be exchanged. Without a file
it runs a model that has learnt nothing.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tilework as tw
from tilework.bench.llm import small, text

PROMPT = "The import statement"


def parts(path, scheme=None, kv_scheme=None):
    """A model from its parts: configuration, tokenizer, weights as they lie in the file, a pipeline, a plan."""
    file = tw.gguf.load(path)  # mapped: nothing is read but the header
    config = tw.llm.Config.of(file.metadata, str(path))
    tokenizer = tw.llm.Tokenizer(file.metadata, str(path))
    weights = tw.llm.Weights(file, scheme and tw.schemes.get(scheme), str(path))
    return tw.llm.Model(config, weights, tokenizer, kv_scheme=kv_scheme and tw.schemes.get(kv_scheme))


def continued(model, prompt, sampler, count=40):
    """The prompt and what follows, token by token, by hand: what `model.generate` does."""
    session = model.session()
    ids = model.tokenizer.encode(prompt)
    logits = session.feed(ids)  # prefill: all tokens of the prompt at once
    made = []
    while len(made) < count:
        token = sampler(logits[-1])
        if token in model.tokenizer.ends:
            break
        made.append(token)
        logits = session.feed([token])  # decode: one token, which sees the cache
    return prompt + model.tokenizer.decode(made)


def main(path, *schemes):
    model = parts(path)
    print(model.config)
    print(f"{len(model.pipe.steps)} steps, {len(model.pipe.of_kind('state'))} states, {model.vocabulary} tokens")
    start = time.perf_counter()
    print(continued(model, PROMPT, tw.llm.Sampler()))
    print(f"({time.perf_counter() - start:.2f} s)")
    print(continued(model, PROMPT, tw.llm.Sampler(temperature=0.8, top_k=40, seed=1)))

    ids = model.tokenizer.encode(PROMPT)
    right = model.logits(ids)
    for name in schemes:
        for what, other in (("weights", parts(path, scheme=name)), ("cache", parts(path, kv_scheme=name))):
            error = np.abs(other.logits(ids) - right).max()
            print(f"{name:20} {what:8} logits change by up to {error:.3f} of {np.abs(right).max():.1f}")


def drawn(folder):
    """A file whose model has learnt nothing, so that this runs without one."""
    recipe = small.Recipe(width=64, hidden=96, layers=2, vocabulary=270, context=128)
    tensors = {n: w if w.ndim == 1 else tw.gguf.encoded(n, w, "Q8_0") for n, w in small.drawn(recipe).items()}
    tw.gguf.save(Path(folder) / "drawn.gguf", tensors, {**recipe.metadata, **text.vocabulary(PROMPT * 9, 270)})
    return Path(folder) / "drawn.gguf"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            main(drawn(folder), "int4_g32")
