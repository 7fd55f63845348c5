"""linear on the CPU."""
