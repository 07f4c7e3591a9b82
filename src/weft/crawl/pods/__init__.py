"""A crawl in several processes: embedded pods that exchange links, and pods on Redis with their servers."""
