"""Steps that act element by element, operands broadcast against each other."""

from .basic import CODES as CODES
from .basic import NUMBERS as NUMBERS
from .basic import SUMS as SUMS
from .basic import Add as Add
from .basic import AddQuantized as AddQuantized
from .basic import Clip as Clip
from .basic import Relu as Relu
from .steps import Elementwise as Elementwise
from .steps import QuantizedElementwise as QuantizedElementwise
from .table import TABLE as TABLE
from .table import Operation as Operation
