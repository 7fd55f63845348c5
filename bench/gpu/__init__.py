"""How fast plans are on a GPU: its own clock, its own ceilings, other libraries beside, one table."""
