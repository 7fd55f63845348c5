"""Attention on the CPU. Importing this registers it."""

from . import append as append
from . import codes as codes
from . import steps as steps
