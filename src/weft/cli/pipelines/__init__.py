"""Commands of the pipelines and of the worker pool."""
