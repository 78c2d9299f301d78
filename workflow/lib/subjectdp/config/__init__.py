"""Configuration: scenarios, runs and ids. Imports pydantic, yaml and the standard library only."""
