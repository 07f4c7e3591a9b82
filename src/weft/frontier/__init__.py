"""What to fetch next, and when."""
