-- Where things stand. Reply: counters, leases, length of the parse queue, (crawl pages seen max flight given)*, sites due
-- now, what waits where (outboxes, scheduled, blocked, rejects, mail, seeded, queues that want more from disk): all of one
-- instant, so that nothing that moves meanwhile is missed by whoever decides over the end.
local names = { 'queued', 'sites', 'admitted', 'finished', 'sent', 'received', 'item' }
local counters = call('HMGET', 'n', unpack(names))
for i = 1, #names do counters[i] = tonumber(counters[i]) or 0 end
local out, blocked = {}, 0
local scheduled, due = 0, 0
for _, c in ipairs(call('HKEYS', 'numbers')) do
  local k = crawl(c)
  if not k.ended then
    out[#out + 1] = { tonumber(c), k.pages, k.seen, k.max or -1, k.flight, k.given or -1 }
    blocked = blocked + call('ZCARD', 'blocked:' .. c)
    if k.queued > 0 then
      scheduled = scheduled + call('ZCOUNT', 'due:' .. c, '-inf', '(inf')
      if not k.paused then due = due + call('ZCOUNT', 'due:' .. c, '-inf', fmt('%.0f', now)) end
    end
  end
end
local boxes = 0
for _, many in ipairs(call('HVALS', 'outboxes')) do boxes = boxes + tonumber(many) end
local waits = {
  boxes,
  scheduled,
  blocked,
  call('LLEN', 'rejects') + call('LLEN', 'rejected'),
  call('LLEN', 'nearer') + call('LLEN', 'told'),
  tonumber(call('HGET', 'meta', 'seeded') or 0),
  call('SCARD', 'low'),
}
return reply(counters, call('HLEN', 'lease'), call('LLEN', 'parse'), out, due, waits)
