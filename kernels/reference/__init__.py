"""What each step means, in plain NumPy. Importing this registers the backend "reference"."""

from . import steps as steps
