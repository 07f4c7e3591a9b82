"""The scrape service: accepts tasks, runs them in the background, and serves their status, events and results."""
