"""Commands for pipelines and for the worker pool."""
