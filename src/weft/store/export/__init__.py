"""Gives a crawl away: JSONL, CSV, CDXJ, WARC, Parquet, Markdown, each in constant memory and resumable."""
