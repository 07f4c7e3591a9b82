"""What package registries know of a module."""
