"""The engine's loops and their steps: claim, transfer, parse, store, commit, report to the frontier."""
