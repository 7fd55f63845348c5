"""Translators, one file a family. Importing this enters them all into scope.TABLE."""

from . import control as control
from . import conv as conv
from . import elementwise as elementwise
from . import linear as linear
from . import microsoft as microsoft
from . import moving as moving
from . import quantize as quantize
from . import rare as rare
from . import recurrent as recurrent
from . import reduce as reduce
from . import sequences as sequences
from . import transformers as transformers
from . import wide as wide
