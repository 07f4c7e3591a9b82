"""The scrape service over HTTP."""
