"""Reads what tasks have stored, for callers: events, results, overviews."""
