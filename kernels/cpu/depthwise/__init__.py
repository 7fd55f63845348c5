"""Depthwise convolution on the CPU: every output channel has an input channel of its own."""
