"""How a CUDA device does each step. Importing this registers the backend "cuda"; it imports no CUDA library."""

from . import argmax as argmax
from . import cast as cast
from . import conv as conv
from . import elementwise as elementwise
from . import fused as fused
from . import gemm as gemm
from . import linear as linear
from . import lookup as lookup
from . import map as map
from . import quantize as quantize
from . import requantize as requantize
from .moving import copy as moving_copy  # noqa: F401
from .moving import gather as moving_gather  # noqa: F401
from .moving import order as moving_order  # noqa: F401
from .moving import scatter as moving_scatter  # noqa: F401
from .reduce import dynamic as reduce_dynamic  # noqa: F401
from .reduce import steps as reduce_steps  # noqa: F401
