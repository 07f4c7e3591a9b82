"""Many crawls in one process (core, tenant), and the loop that every crawl runs on (loop/), over any frontier."""
