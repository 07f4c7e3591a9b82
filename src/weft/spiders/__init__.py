"""Product: a user's own code in a crawl: what its author is handed (spider), and what runs in a parser child."""
