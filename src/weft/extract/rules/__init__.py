"""Rules: the fields of a page, by CSS, XPath, pattern or JSON-LD."""
