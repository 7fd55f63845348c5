"""Measuring tiles: which ones there are, how long each takes, and which one a plan should take."""
