-- A hand has found that the process that held a task is dead: its lease ends now. KEYS: the task's claim, its lease.
-- ARGV: the holder.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
