"""The index that finds pages in WARC files: its layout, its writer, its readers."""
