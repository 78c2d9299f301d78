"""Tables and pages of the report; verdicts on the papers' numbers."""
