-- A hand sends results of a task it has claimed, or only renews its lease.
-- KEYS: the run, the task's claim, its lease, its status, the run's results, the bytes in them.
-- ARGV: epoch, the holder, the lease (ms), how long a claim is remembered (ms), the signed status, the signed entry
-- ('': none), its bytes with those that lie beside it, the most bytes of a run, how long results are kept (ms), 1 if
-- the task ends with it, the task.
-- Reply: now (ms), a word: ok, full (send it again later), back (return what is not begun), stop (the run stops), gone
-- (another epoch, or the brain has closed the task: nothing more of it counts).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = redis.call('HMGET', KEYS[1], 'epoch', 'stop', 'back:' .. ARGV[11])
if run[1] ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return {now, 'gone'} end
redis.call('SET', KEYS[3], 1, 'PX', ARGV[3])
redis.call('SET', KEYS[4], ARGV[5], 'PX', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if ARGV[6] ~= '' then
  local kept = tonumber(redis.call('GET', KEYS[6]) or '0')
  if kept > 0 and kept + ARGV[7] > tonumber(ARGV[8]) then return {now, 'full'} end
  redis.call('XADD', KEYS[5], '*', 'm', ARGV[6], 'b', ARGV[7])
  redis.call('INCRBY', KEYS[6], ARGV[7])
  redis.call('PEXPIRE', KEYS[5], ARGV[9])
  redis.call('PEXPIRE', KEYS[6], ARGV[9])
end
if ARGV[10] == '1' then
  redis.call('SET', KEYS[2], 'done', 'PX', ARGV[4])
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('HDEL', KEYS[1], 'back:' .. ARGV[11])
end
if run[2] then return {now, 'stop'} end
return {now, run[3] and 'back' or 'ok'}
