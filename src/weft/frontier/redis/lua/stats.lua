-- Where things stand. Reply: counters, leases, length of the parse queue, (crawl pages seen max flight given)*, sites due
-- now, what waits where (outboxes, scheduled, blocked, rejects, mail, seeded, queues that want more from disk): all of one
-- instant, so that nothing that moves meanwhile is missed by whoever decides over the end.
local names = { 'queued', 'sites', 'admitted', 'finished', 'received', 'item' }
local counters = call('HMGET', 'n', unpack(names))
for i = 1, #names do counters[i] = tonumber(counters[i]) or 0 end
local out, blocked = {}, 0
local scheduled, due = 0, 0
local now_text = fmt('%.0f', now)
for _, c in ipairs(call('HVALS', 'crawls')) do
  -- There may be thousands that wait: no more is read of them than this.
  local v = call('HMGET', 'c:' .. c, 'pages', 'seen', 'max', 'flight', 'given', 'queued', 'paused')
  out[#out + 1] = { tonumber(c), tonumber(v[1]) or 0, tonumber(v[2]) or 0, tonumber(v[3]) or -1, tonumber(v[4]) or 0,
    tonumber(v[5]) or -1 }
  if (tonumber(v[6]) or 0) > 0 then
    blocked = blocked + call('ZCARD', 'blocked:' .. c)
    for at = FINE, UNKNOWN do
      scheduled = scheduled + call('ZCOUNT', LINES[at] .. c, '-inf', '(inf')
      if v[7] ~= '1' then due = due + call('ZCOUNT', LINES[at] .. c, '-inf', now_text) end
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
