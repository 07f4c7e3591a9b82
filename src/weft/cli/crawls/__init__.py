"""Commands that start, monitor and control crawls."""
