"""Parser processes, and what crosses between them and the engine."""
