"""Steps over rows of tables on the CPU."""

from . import group as group
from . import keys as keys
from . import rows as rows
from . import sketch as sketch
from . import window as window
