-- A hand reports. KEYS: hands by the time of their report, their reports, the owner, clusters with a brain, whether a pool runs here.
-- ARGV: the hand, its signed report ('': it leaves), how long reports are kept (ms).
-- Reply: now (ms), the owner's facts or '', how many clusters on this database have a brain; 0 if this one has, be it
-- but a run of a pool.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3], 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('HDEL', KEYS[2], gone)
end
local brains = redis.call('ZCOUNT', KEYS[4], now, '+inf')
if redis.call('EXISTS', KEYS[5]) == 1 then brains = 0 end
return {now, redis.call('HGET', KEYS[3], 'facts') or '', brains}
