"""Tables collected from finished runs, and how to read them."""
