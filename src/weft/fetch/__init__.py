"""Speaks HTTP to a site, and obeys it."""
