"""The frontier of one process: the working set in memory, durable in a journal beside it."""
