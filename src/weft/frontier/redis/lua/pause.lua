-- Nothing of a paused crawl is claimed: it has no turn. ARGV: crawl, paused (1 or 0).
local c = ARGV[3]
local k = crawl(c)
if k.is_gone then return reply() end
call('HSET', 'c:' .. c, 'paused', ARGV[4])
k.paused, k.limited = ARGV[4] == '1', true
if k.paused then
  call('ZREM', 'ring', c)
  call('ZREM', 'soon', c)
else
  soonest[c] = first_of(c)
  unblock(k, 1000)
end
return reply()
