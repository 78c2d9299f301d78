"""What a scenario will cost: runs, hours, memory, disk."""
