"""Parser processes, and the messages between them and the engine."""
