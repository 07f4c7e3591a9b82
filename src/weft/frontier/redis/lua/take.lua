-- Leases fetched pages to a parser. ARGV: owner, limit.
-- Reply: the deadline, (item stamp crawl site depth hops purpose attempt about rest delay reference deaths)*
local owner, limit = ARGV[3], tonumber(ARGV[4])
local out = {}
local stamp = tonumber(head[5]) or 0
local deadline = fmt('%.0f', now + D.lease)
for _, n in ipairs(call('ZRANGEBYSCORE', 'deadline', '-inf', now, 'LIMIT', 0, 50)) do
  local rec = unpack_(call('HGET', 'lease', n))
  if rec[7] ~= '' then
    drop_lease(n)
    returned(rec)
  end
end
local names = call('LPOP', 'parse', limit) or {}
local records, deaths = fields('fetched', names), fields('deaths', names)
local taken, deadlines = {}, {}
for _, n in ipairs(names) do
  local rec = unpack_(records[n])
  local item, k = rec[6], crawl(rec[4])
  stamp = stamp + 1
  rec[1], rec[2] = stamp, owner
  append(taken, n, pack(rec))
  append(deadlines, deadline, n)
  out[#out + 1] = { n, stamp, rec[4], rec[3], item[2], item[3], item[4], item[5], item[6], item[7],
    fmt('%.0f', k.D.delay), rec[7], tonumber(deaths[n]) or 0 }
end
many('HDEL', 'fetched', names)
many('HSET', 'lease', taken)
many('ZADD', 'deadline', deadlines)
if #out > 0 then append(tail, 'stamp', fmt('%.0f', stamp)) end
return reply(deadline, out)
