"""`python -m tilework` is the console script `tilework`."""

from tilework.bench.cli import main

if __name__ == "__main__":
    main()
