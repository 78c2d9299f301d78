"""Tables and pages of the report."""
