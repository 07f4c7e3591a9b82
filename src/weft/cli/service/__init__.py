"""Commands of the scrape service and of everything that must run."""
