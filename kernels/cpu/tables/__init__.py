"""Steps over rows of tables on the CPU."""
