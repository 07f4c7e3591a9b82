"""How an embedded frontier is saved, restored, and replaced."""
