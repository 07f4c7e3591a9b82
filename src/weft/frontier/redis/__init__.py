"""The frontier in a Redis that a pod's processes share."""
