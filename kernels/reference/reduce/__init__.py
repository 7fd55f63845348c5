"""What reductions, and the steps made of them, compute."""
