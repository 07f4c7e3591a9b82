"""The named steps of a pipeline's run at which its parent may be killed and nothing but work under way is lost."""

STEPS = (
    "values-written",  # in the cache; the pool's journal does not have their results
    "result-read",  # in the pool's journal, and its values in the cache; the output does not have it
    "shard-written",  # all rows are in the shard, which has no name yet
    "shard-renamed",  # it has its name; no checkpoint says so
    "checkpointed",
    "items-done",  # all items have ended; rows of a collector are not begun
    "collected",  # all rows are in shards that are not published
    "shard-published",  # some shards are published, others not
    "manifest-written",  # what the manifest before named is still there
    "published",
    "cache-copied",  # tidied: what is used is in a new file
    "cache-replaced",  # the new file has its name, its index does not
    "cache-uses-replaced",
    "reported",
)
