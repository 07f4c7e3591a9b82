"""Isolated workers: code runs in processes that may die, hang or grow without harm to the process that owns them.

`process_pool` starts, feeds, watches and ends workers; `fork_server` forks them and cleans up after them; `suspects`
says when an item is to blame for deaths. Used by the pipelines' worker pool and by the engine's parser children.
"""
