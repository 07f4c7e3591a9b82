"""The working set of an embedded frontier: sites, their queues and clocks, and whose turn it is."""
