"""What a scenario will cost and promise, before it is run: runs, ε, hours, memory, disk."""
