"""A federation of machines: the server that leads it, and a silo that guards its own people's budget."""
