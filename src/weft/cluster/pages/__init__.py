"""Pages fetched and rendered by hands; a hand's browsers ask the brain what a page may load."""
