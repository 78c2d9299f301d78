"""What a run records: steps, rounds, checkpoints, manifest."""
