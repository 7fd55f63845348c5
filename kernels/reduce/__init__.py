"""Steps that reduce along axes, and those that are made of reductions: softmax, normalization, dynamic quantization."""

from .coded import ReduceCodes as ReduceCodes
from .dynamic import DynamicQuantize as DynamicQuantize
from .dynamic import Extremes as Extremes
from .dynamic import Parameters as Parameters
from .normalize import Normalize as Normalize
from .softmax import Softmax as Softmax
from .steps import REDUCTIONS as REDUCTIONS
from .steps import Reduce as Reduce
