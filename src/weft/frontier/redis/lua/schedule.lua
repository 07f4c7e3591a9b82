-- Schedules sites anew, after the delay of a crawl was changed. ARGV: crawl, sites; without sites: all of them are.
if #ARGV == 3 then call('HDEL', 'c:' .. ARGV[3], 'moving') end
for i = 4, #ARGV do schedule(load(ARGV[i]), true) end
return reply()
