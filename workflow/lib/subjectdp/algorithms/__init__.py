"""The papers' algorithms, one file each, and their registry."""
