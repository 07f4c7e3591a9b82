"""A refresh of proxies over workers: its steps, its chunks, and who wants it."""
