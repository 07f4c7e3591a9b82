-- Leases fetched pages to a parser. ARGV: owner, limit.
-- Reply: the deadline, (item stamp crawl site depth hops purpose attempt about rest delay reference deaths)*
local owner, limit = ARGV[3], tonumber(ARGV[4])
local out = {}
local stamp = tonumber(call('HGET', 'n', 'stamp')) or 0
local deadline = fmt('%.0f', now + D.lease)
for _, n in ipairs(call('ZRANGEBYSCORE', 'deadline', '-inf', now, 'LIMIT', 0, 50)) do
  local rec = unpack_(call('HGET', 'lease', n))
  if rec[7] ~= '' then
    drop_lease(n)
    returned(rec)
  end
end
for _, n in ipairs(call('LPOP', 'parse', limit) or {}) do
  local rec = unpack_(call('HGET', 'fetched', n))
  call('HDEL', 'fetched', n)
  stamp = stamp + 1
  rec[1], rec[2] = stamp, owner
  call('HSET', 'lease', n, pack(rec))
  call('ZADD', 'deadline', deadline, n)
  local item = rec[6]
  out[#out + 1] = { n, stamp, rec[4], rec[3], item[2], item[3], item[4], item[5], item[6], item[7],
    fmt('%.0f', D.delay), rec[7], tonumber(call('HGET', 'deaths', n)) or 0 }
end
if #out > 0 then call('HSET', 'n', 'stamp', fmt('%.0f', stamp)) end
return reply(deadline, out)
