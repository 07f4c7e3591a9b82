"""The content of the pages of the synthetic web."""
