"""The named steps of a pipeline's run at which its parent may be killed and nothing but work under way is lost."""

STEPS = (
    "result-read",  # in the pool's journal; the cache does not have its values
    "result-cached",  # in the cache; the output does not have it
    "shard-written",  # all rows are in the shard, which has no name yet
    "shard-renamed",  # it has its name; no checkpoint says so
    "checkpointed",
    "items-done",  # all items have ended; rows of a collector are not begun
    "collected",  # all rows are in shards that are not published
    "shard-published",  # some shards are in their place, others not
    "manifest-written",  # what the manifest before named is still there
    "published",
    "reported",
)
