"""Depthwise convolution on the CPU: every output channel has an input channel of its own."""

from . import expand as expand
from . import steps as steps
