"""Convolution on the CPU."""
