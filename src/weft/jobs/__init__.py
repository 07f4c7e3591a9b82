"""The scrape service: submit a task, get its id at once, watch it, take what it has."""
