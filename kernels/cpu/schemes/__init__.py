"""Blocks and schemes on the CPU: fit, encode, decode, and codes as bytes."""
