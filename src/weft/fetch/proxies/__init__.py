"""Requests through proxies: the list of proxies, their tests, and the choice for each request."""
