"""`tilework scheme ..` and `tilework bench schemes`: figures, proofs, pages and speed of quantization schemes."""
