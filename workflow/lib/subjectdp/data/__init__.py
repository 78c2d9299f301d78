"""Data sets: fetching, preparing, splitting and partitioning by subject."""
