"""Batches of items for a pool (`weft.pipelines`) on hands: `celery_engine` is the brain's side, `batch_hand` the hand's.

The brain keeps journal, order and crash rules; a hand runs what a task has, in worker processes of the pool, and sends
each result as it ends. `run_board` is all that both share on the broker.
"""
