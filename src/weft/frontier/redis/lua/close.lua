-- Ends a crawl: its queue is dropped as a whole, and its name is free. Each step may be repeated.
--
-- ARGV: crawl, slot     nothing of it is claimed, or told, from now on; until it is confirmed, `recover` of that slot undoes it
--       crawl, empty    it has ended for good: it is deleted in pieces (forget.lua)
local c, slot = ARGV[3], ARGV[4]
local key = 'c:' .. c
local k = crawl(c)
if k.is_gone then return reply() end
if not k.ended then
  local name = call('HGET', key, 'name')
  if call('HGET', 'crawls', name) == c then
    local twin = call('HGET', 'twins', name)
    call('HDEL', 'crawls', name)
    if twin then
      call('HSET', 'crawls', name, twin)
      call('HDEL', 'twins', name)
    end
  elseif call('HGET', 'twins', name) == c then
    call('HDEL', 'twins', name)
  end
  call('HSET', key, 'ended', 1)
  call('HSET', 'closing', c, slot)
  call('ZREM', 'ring', c)
  call('ZREM', 'soon', c)
  count('queued', -k.queued)
end
if slot == '' then
  call('HSET', key, 'ended', 2)
  call('HDEL', 'closing', c)
  call('HDEL', 'numbers', c)
  call('SADD', 'over', c)
end
return reply()
