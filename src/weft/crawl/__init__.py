"""Product: crawls. The function `weft.crawl(seeds, max_pages=100)`, which yields pages, is in page_iteration.py."""
