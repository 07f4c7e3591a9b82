"""The pipeline `pages`: the pages of a crawl, or of any WARC files, as a data set (docs/pages.md)."""
