"""Steps that move data, on CUDA."""
