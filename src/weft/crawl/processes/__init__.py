"""The processes of a crawl: the orchestrator, its fetchers, and their messages."""
