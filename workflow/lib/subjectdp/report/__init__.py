"""Tables and pages of the report; the papers' numbers beside ours: targets, measurements, verdicts."""
