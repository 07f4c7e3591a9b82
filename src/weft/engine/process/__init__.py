"""The process that an engine runs in, and the channel to it."""
