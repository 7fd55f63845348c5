"""Every kernel class of this package. Importing this registers them all, for pipelines that come from files.

A program that makes its pipelines imports what it uses; a file may hold any of them.
"""

from .ops import arithmetic as arithmetic
from .ops import arrays as arrays
from .ops import channels as channels
from .ops import finding as finding
from .ops import moving as moving
from .ops import products as products
from .ops import recurrent as recurrent
from .ops import reductions as reductions
from .ops import sampling as sampling
from .ops import schemes as schemes
from .ops import tables as tables
from .ops import transformers as transformers
from .schemes import shipped as shipped
