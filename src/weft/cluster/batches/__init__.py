"""Batches of items for a pool (`weft.pipelines`) on hands.

The brain (`celery_engine`) keeps journal, order and crash rules; a hand (`weft.cluster.batch_task`, `hand_engine`) runs
what a task has, in worker processes of the pool, and sends each result as it ends. `run_board` is all that both share
on the broker.
"""
