"""Steps that move data: shapes, transposes, slices, joins, gathers, scatters.

Most of them are one view of what they read, copied to one view of what they write: a step's `execute` makes the views
and sweeps `Copy` (copy.py) over them, so that one compiled copy for each element size and rank serves them all.
"""
