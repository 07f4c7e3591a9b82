-- The current numbers. Reply: counters, leases, length of the parse queue, (crawl pages seen max flight given)*, sites due
-- now, how much waits where (outboxes, scheduled, blocked, rejects, mail, seeded): read at one instant, so that an item that
-- moves is not missed by the decision that the crawl is over.
local names = { 'queued', 'sites', 'admitted', 'finished', 'sent', 'received', 'item' }
local counters = call('HMGET', 'n', unpack(names))
for i = 1, #names do counters[i] = tonumber(counters[i]) or 0 end
local out, blocked = {}, 0
for _, c in ipairs(call('HVALS', 'crawls')) do
  local k = crawl(c)
  out[#out + 1] = { tonumber(c), k.pages, k.seen, k.max or -1, k.flight, k.given or -1 }
  blocked = blocked + call('ZCARD', 'blocked:' .. c)
end
local boxes = 0
for _, many in ipairs(call('HVALS', 'outboxes')) do boxes = boxes + tonumber(many) end
local waits = {
  boxes,
  call('ZCARD', 'due'),
  blocked,
  call('LLEN', 'rejects') + call('LLEN', 'rejected'),
  call('LLEN', 'nearer') + call('LLEN', 'told'),
  tonumber(call('HGET', 'meta', 'seeded') or 0),
}
return reply(counters, call('HLEN', 'lease'), call('LLEN', 'parse'), out, call('ZCOUNT', 'due', '-inf', now), waits)
