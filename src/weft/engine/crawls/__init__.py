"""One crawl of an engine: its settings, rules, limits, seeds and record."""
