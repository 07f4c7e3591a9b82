"""The checks of `weft doctor`: what a machine needs for its settings, and whether it has it."""
