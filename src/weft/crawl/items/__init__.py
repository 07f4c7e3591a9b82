"""Items of a crawl with user code: read as they are committed, and written to files."""
