"""Requests through proxies: which there are, which of them work, and which one goes next."""
