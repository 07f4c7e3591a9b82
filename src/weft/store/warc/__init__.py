"""WARC files: records made, appended, read, also those of other tools."""
