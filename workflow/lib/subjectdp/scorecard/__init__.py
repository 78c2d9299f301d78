"""The papers' numbers beside ours: targets, measures, verdicts."""
