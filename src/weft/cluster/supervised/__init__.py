"""The Celery processes of a supervisor: its own worker, and scheduler."""
