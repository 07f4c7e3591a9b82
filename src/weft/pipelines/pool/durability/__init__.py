"""What a run of the pool keeps on the disk, and a resume reads."""
