"""Which URLs a crawl has seen: in memory and on disk."""
