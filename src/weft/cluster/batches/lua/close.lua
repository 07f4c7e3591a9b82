-- The brain closes a task: nothing is accepted of it from here on, and what was accepted stands before the mark in the
-- results. KEYS: the task's claim, its lease, the run's results, the run.
-- ARGV: the task, how long a claim is remembered (ms), how long results are kept (ms).
redis.call('SET', KEYS[1], 'closed', 'PX', ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('HDEL', KEYS[4], 'back:' .. ARGV[1])
redis.call('XADD', KEYS[3], '*', 'c', ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 1
