-- Reserves bytes for a body, or gives them back. KEYS: reservations by their end, the sum of them.
-- ARGV: the body's id, its bytes (0: give back what the id has), the most bytes of all, time to live (ms).
-- Reply: 1 if there was room. A member is `bytes:id`, so that an ended one can be subtracted.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function drop(member)
  if redis.call('ZREM', KEYS[1], member) == 1 then
    redis.call('DECRBY', KEYS[2], string.match(member, '^(%d+):'))
  end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1000)) do drop(member) end
if ARGV[3] == '0' then
  drop(ARGV[2] .. ':' .. ARGV[1])
  return 1
end
local sum = tonumber(redis.call('GET', KEYS[2]) or '0')
if redis.call('ZCARD', KEYS[1]) == 0 then sum = 0 end
if sum + ARGV[2] > tonumber(ARGV[3]) then return 0 end
if redis.call('ZADD', KEYS[1], now + ARGV[4], ARGV[2] .. ':' .. ARGV[1]) == 1 then
  redis.call('SET', KEYS[2], string.format('%d', sum + ARGV[2]))
end
return 1
