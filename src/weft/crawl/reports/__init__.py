"""Reports on a crawl: status, changes, outcome, audit, explanations, exports; and the rebuild."""
