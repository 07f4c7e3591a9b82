"""What a pipeline is made of, as its file says it, and the plan of a run."""
