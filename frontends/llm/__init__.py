"""Language models from GGUF files: `load` makes a decoder of one; it gives logits and generates text."""

from .config import Config as Config
from .decoder import decoder as decoder
from .decoder import turns as turns
from .model import Model as Model
from .model import Session as Session
from .model import load as load
from .sampling import Sampler as Sampler
from .tokenizer import Tokenizer as Tokenizer
from .weights import Weights as Weights

__all__ = ["Config", "Model", "Sampler", "Session", "Tokenizer", "Weights", "decoder", "load", "turns"]
