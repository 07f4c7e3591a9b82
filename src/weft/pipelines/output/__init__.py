"""What a run writes: outcomes, results, rows, counts, reports."""
