"""The parser's half of the loop: reads fetched pages, and the spool that brings them from fetchers."""
