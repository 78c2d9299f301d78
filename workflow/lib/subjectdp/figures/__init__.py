"""The figures: drawn from the collected tables of a scenario."""
