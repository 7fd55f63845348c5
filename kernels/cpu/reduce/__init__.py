"""Reductions and what is made of them, on the CPU. Importing this registers them."""

from . import dynamic as dynamic
from . import steps as steps
