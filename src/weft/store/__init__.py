"""Keeps pages: WARC files as the truth, an index beside them."""
