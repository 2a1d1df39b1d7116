"""Data sets, the space of their inputs, and their division among clients."""
