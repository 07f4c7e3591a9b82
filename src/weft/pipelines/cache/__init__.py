"""The cache of stage values."""
