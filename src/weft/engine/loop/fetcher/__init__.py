"""The fetcher's half of the loop: claims, transfers and their results."""
