-- Where things stand. Reply: counters, leases, length of the parse queue, (crawl pages seen max flight given)*, sites due now
local names = { 'queued', 'sites', 'admitted', 'finished', 'sent', 'received', 'item' }
local counters = call('HMGET', 'n', unpack(names))
for i = 1, #names do counters[i] = tonumber(counters[i]) or 0 end
local out = {}
for _, c in ipairs(call('HVALS', 'crawls')) do
  local k = crawl(c)
  out[#out + 1] = { tonumber(c), k.pages, k.seen, k.max or -1, k.flight, k.given or -1 }
end
return reply(counters, call('HLEN', 'lease'), call('LLEN', 'parse'), out, call('ZCOUNT', 'due', '-inf', now))
