"""What privacy costs on a convex loss: the papers' bounds, and the excess loss of the same algorithms measured."""
