"""Products on the CPU: what they read, how it is packed, the tiles and the driver."""
