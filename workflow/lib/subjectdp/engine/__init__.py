"""The clipping engine: per-item and per-subject clipped gradient sums."""
