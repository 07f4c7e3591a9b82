"""Host names to addresses."""
