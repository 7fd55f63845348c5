"""Data movement on the CPU: compiled once for each element size and rank, whatever the types."""
