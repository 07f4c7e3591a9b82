"""Where a crawl begins: seeds of any number, and known URLs that are visited again."""
