-- The brain lives. KEYS: the run, the mark of a pool's run, the run's results, the bytes in them, then what it has put
-- beside (facts, code, items). ARGV: epoch, time to live (ms), how long results are kept (ms), how long what lies
-- beside is (ms).
-- Reply: now (ms), 1 if the run is there as it was opened, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return {now, 0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], 1, 'PX', ARGV[2])
for at = 3, #KEYS do redis.call('PEXPIRE', KEYS[at], at <= 4 and ARGV[3] or ARGV[4]) end
return {now, 1}
