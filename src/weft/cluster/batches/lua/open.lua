-- The brain opens a run, or opens it again. KEYS: the run, the mark of a pool's run. ARGV: time to live (ms).
-- Reply: now (ms), the new epoch: a time of this clock, so that the epochs of a database that was emptied are above
-- those that it had.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = math.max(now, (tonumber(redis.call('HGET', KEYS[1], 'epoch')) or 0) + 1)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', string.format('%d', epoch))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], 1, 'PX', ARGV[1])
return {now, epoch}
