"""The working set of an embedded frontier: sites, their queues and clocks, and the order of their turns."""
