"""Short tasks on other machines: the brain (an engine) decides, hands (Celery workers) carry out.

`broker` is the state that all share, on Redis or Valkey; `signing` is what makes a message trustworthy; `tasks` lists
what a hand can do; `hand` is the worker process. Only this room imports Celery.
"""
