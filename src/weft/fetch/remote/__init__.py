"""Requests made by workers on other machines: the transport for the loop, and the routing of requests to workers."""
