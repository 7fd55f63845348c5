"""Reductions and what is made of them, on the CPU."""
