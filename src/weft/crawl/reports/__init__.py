"""What can be said of a crawl: its standing, changes, outcome, audit, explanations, exports; and the rebuild."""
