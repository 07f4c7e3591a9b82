"""Weft collects the web politely and never loses what it has."""

__version__ = "0.1.0"
