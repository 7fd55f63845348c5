"""Data movement on the CPU: compiled once for each element size and rank, whatever the types."""

from . import copy as copy
from . import gather as gather
from . import order as order
from . import resample as resample
from . import scatter as scatter
