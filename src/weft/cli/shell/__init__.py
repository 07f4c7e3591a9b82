"""`weft shell`: a prompt with one page, for trying selectors and callbacks."""
