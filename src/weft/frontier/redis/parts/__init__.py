"""The parts of a frontier on Redis, each with its own state over one link."""
