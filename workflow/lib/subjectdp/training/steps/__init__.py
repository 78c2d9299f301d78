"""One local step: mini-batch, clipped sum, noise, optimiser."""
