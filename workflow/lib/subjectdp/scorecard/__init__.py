"""The papers' numbers beside ours: targets, measurements, verdicts."""
