"""Quantization schemes as data: a few plain functions, how their results are stored, and what decode turns out to do."""
