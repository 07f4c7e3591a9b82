-- Claims ids for one run of a task. KEYS: the epoch, then a claim of each id.
-- ARGV: the epoch that the sender had (empty: tasks without one), until when the task counts (ms of this clock),
-- how often each id may be claimed, how long a claim is remembered (ms), when the task was made (ms of this clock).
-- Reply: now (ms), a word for the whole (ok, late, clock, no_epoch, epoch), then for each id 1 (claimed) or 0 (was
-- claimed). The ids of a task that is late are claimed as well, so that no other delivery of it is begun.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local now = now_ms()
if ARGV[1] ~= '' then
  local epoch = redis.call('GET', KEYS[1])
  if not epoch then return {now, 'no_epoch'} end
  if epoch ~= ARGV[1] then return {now, 'epoch'} end
end
local word = now >= tonumber(ARGV[2]) and 'late' or 'ok'
-- This clock was set back since: the task would seem to have more time than its sender waits.
if now + 1000 < tonumber(ARGV[5]) then return {now, 'clock'} end
local reply, most = {now, word}, tonumber(ARGV[3])
if word == 'late' and most ~= 1 then return reply end
for at = 2, #KEYS do
  local count
  if most == 1 then
    count = redis.call('SET', KEYS[at], 1, 'NX', 'PX', ARGV[4]) and 1 or 2
  else
    count = redis.call('INCR', KEYS[at])
    redis.call('PEXPIRE', KEYS[at], ARGV[4])
  end
  reply[#reply + 1] = count <= most and 1 or 0
end
return reply
