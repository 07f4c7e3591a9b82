"""The transports that an engine's crawls share, and its browsers."""
