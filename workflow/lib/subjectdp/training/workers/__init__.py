"""The silos of a round over several processes."""
