"""Product: crawls."""
