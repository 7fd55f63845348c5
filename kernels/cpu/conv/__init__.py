"""Convolution on the CPU."""

from . import expand as expand
from . import plain as plain
from . import steps as steps
from . import transposed as transposed
