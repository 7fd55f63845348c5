"""What each step means, in plain NumPy. Importing this registers the backend "reference"."""

from . import moving_steps as moving_steps
from . import scheme_steps as scheme_steps
from . import steps as steps
from . import tables as tables
