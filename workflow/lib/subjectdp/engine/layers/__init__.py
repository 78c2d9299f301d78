"""Per-layer rules of the clipping engine: squared norms of per-item gradients and their weighted sums."""
