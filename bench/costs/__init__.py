"""What starting, compiling and scaling cost: each is a command, `python -m tilework.bench.costs.NAME --help`."""
