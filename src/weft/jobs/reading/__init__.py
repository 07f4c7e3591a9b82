"""What tasks have stored and done, for callers: events, results, overviews."""
