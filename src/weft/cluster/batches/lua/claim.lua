-- A hand claims a task. KEYS: the run, the task's claim, its lease, its status, the run's results.
-- ARGV: epoch, until when the task counts (ms of this clock), the holder, how long a claim is remembered (ms), the
-- lease (ms), the signed status, the signed entry that reports the claim, how long results are kept (ms).
-- Reply: now (ms), a word: ok, epoch, late, or taken with the holder behind it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return {now, 'epoch', ''} end
if now >= tonumber(ARGV[2]) then return {now, 'late', ''} end
if not redis.call('SET', KEYS[2], ARGV[3], 'NX', 'PX', ARGV[4]) then
  return {now, 'taken', redis.call('GET', KEYS[2])}
end
redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])
redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[4])
redis.call('XADD', KEYS[5], '*', 'm', ARGV[7])
redis.call('PEXPIRE', KEYS[5], ARGV[8])
return {now, 'ok', ''}
