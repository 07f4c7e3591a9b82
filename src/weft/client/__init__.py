"""Clients of the scrape service: `Weft("http://localhost:8000").scrape(url, max_depth=2)`, and `AsyncWeft`."""

from weft.client.aio import AsyncWeft
from weft.client.sync import Weft

__all__ = ["AsyncWeft", "Weft"]
