"""Noise: keyed random generators, Gaussian, Skellam, secure sums."""
