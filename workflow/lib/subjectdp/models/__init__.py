"""Networks of the papers, small ones, heads on public features."""
