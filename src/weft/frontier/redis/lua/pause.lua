-- Nothing of a paused crawl is claimed. ARGV: crawl, paused (1 or 0).
call('HSET', 'c:' .. ARGV[3], 'paused', ARGV[4])
local k = crawl(ARGV[3])
k.limited = true
unblock(k, 1000)
return reply()
