"""Requests made by workers on other machines: the transport to the loop, and who gets which request."""
