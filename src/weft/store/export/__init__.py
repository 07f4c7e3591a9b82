"""Exports a crawl: JSONL, CSV, CDXJ, WARC, Parquet, Markdown, each in constant memory and resumable."""
