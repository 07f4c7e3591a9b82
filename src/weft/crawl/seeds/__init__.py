"""Where a crawl begins: any number of seeds, and known URLs that are visited again."""
