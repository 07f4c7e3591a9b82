"""The processes of a crawl: the orchestrator, its fetchers, and what they send each other."""
