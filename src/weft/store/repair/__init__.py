"""Repairs WARC files and indexes that do not agree: after a crash, after damage, or by a rebuild."""
