"""Commands that report on a crawl's folder, or write what is in it."""
