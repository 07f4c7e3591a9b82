"""Commands of the scrape service and of `weft up`."""
