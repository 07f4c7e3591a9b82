"""The local engine of the pool: the parent's side."""
