"""Keeps pages: WARC files are the truth, indexes find pages in them."""
