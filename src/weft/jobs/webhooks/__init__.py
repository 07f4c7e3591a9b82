"""Delivers the events of a task to the caller's server: durable, signed, in order, at least once."""
