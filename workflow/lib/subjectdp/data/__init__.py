"""Sources of the two data sets: fetching, preparing, splitting and partitioning by subject."""
