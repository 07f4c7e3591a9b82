"""Tells a caller's own server what happens to a task: durable, signed, in order, at least once."""
