"""Keyed randomness and the samplers of items, subjects and silos."""
