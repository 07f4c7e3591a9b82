"""Commands that start, watch and steer crawls."""
