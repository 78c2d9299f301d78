"""The frozen privacy plan: what is sampled, clipped, noised, divided and accounted for."""
