"""How an embedded frontier is written down as a whole, restored, and replaced."""
