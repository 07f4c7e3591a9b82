"""A worker process of the pool, and what it shares with its parent."""
