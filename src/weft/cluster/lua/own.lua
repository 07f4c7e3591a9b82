-- The brain's hold on a cluster. KEYS: owner, epoch of one of its processes, clusters with a brain.
-- ARGV: the owner's name, what is known of it (JSON), time to live (ms), the epoch that it has ('': it wants a new one),
-- the cluster's id.
-- Reply: now (ms), the epoch, the owner's facts as they were; epoch 0: another brain holds the cluster.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder = redis.call('HMGET', KEYS[1], 'name', 'facts')
if holder[1] and holder[1] ~= ARGV[1] then return {now, 0, holder[2] or ''} end
redis.call('HSET', KEYS[1], 'name', ARGV[1], 'facts', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[5])
local held = redis.call('GET', KEYS[2]) or ''
local epoch = #held <= 15 and string.match(held, '^%d+$') and tonumber(held) -- else as if it were not there
if ARGV[4] == '' or not epoch then
  -- Times of the clock, so that the epochs of a database that was emptied are above those that it had.
  epoch = math.max(now, (epoch or tonumber(ARGV[4]) or 0) + 1)
  redis.call('SET', KEYS[2], string.format('%d', epoch))
end
return {now, epoch, ARGV[2]}
