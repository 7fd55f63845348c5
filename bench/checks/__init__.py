"""Long random runs that hold what is promised: each is a command, `python -m tilework.bench.checks.NAME --help`."""
