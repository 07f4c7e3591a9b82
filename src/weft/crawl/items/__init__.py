"""Items of a crawl with a user's code: read as they are committed, and written to files."""
