"""What this machine has, what it can do at most, and what other programs take of it meanwhile."""
