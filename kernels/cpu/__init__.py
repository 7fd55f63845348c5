"""How one CPU does each step. Importing this registers the backend "cpu"."""

from . import argmax as argmax
from . import attention as attention
from . import cast as cast
from . import conv as conv
from . import depthwise as depthwise
from . import elementwise as elementwise
from . import gemm_expand as gemm_expand
from . import gemm_plain as gemm_plain
from . import linear as linear
from . import lookup as lookup
from . import map as map
from . import moving as moving
from . import pool as pool
from . import quantize as quantize
from . import real_expand as real_expand
from . import reduce as reduce
from . import relayout as relayout
from . import requantize as requantize
from . import scheme_bytes as scheme_bytes
from . import schemes as schemes
from . import tables as tables
