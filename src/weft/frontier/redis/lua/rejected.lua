-- Leases rejected items to a process that stores their rows.
--
-- ARGV: owner, limit. Reply: (item stamp crawl site depth hops purpose attempt about rest reason)*; a reason may have a cause behind a colon
local owner, limit = ARGV[3], tonumber(ARGV[4])
local out = {}

-- Unpacks rejected queues as far as is needed; segments on disk wait until the lead has loaded them.
local function open_some(wanted)
  for _ = 1, call('LLEN', 'rejects') do
    if wanted <= 0 then return end
    local text = call('LPOP', 'rejects')
    local name, kind, c, d, site, reason = unpack(unpack_(text))
    if kind == 'segments' then
      call('RPUSH', 'rejects', text)
    else
      local k = crawl(c)
      local entries = call('LPOP', name, wanted) or {}
      for _, entry in ipairs(entries) do
        local n, rest, fp = struct.unpack('>I5', entry), sub(entry, 6), ''
        if k.depths then
          local size = string.byte(entry, 6)
          rest, fp = sub(entry, 7 + size), sub(entry, 7, 6 + size)
        end
        local is = fp ~= '' and known(c, fp)
        if not is or is.n ~= n or (is.state == 'q' and is.depth >= tonumber(d)) then
          call('RPUSH', 'rejected', pack({ c, reason, site, { n, tonumber(d), 0, 'p', 0, '', rest, fp } }))
          wanted = wanted - 1
        end
      end
      if call('EXISTS', name) == 1 then call('LPUSH', 'rejects', text) end
    end
  end
end

open_some(limit - call('LLEN', 'rejected'))
local stamp = tonumber(head[5]) or 0
for _, text in ipairs(call('LPOP', 'rejected', limit) or {}) do
  local c, reason, site, item = unpack(unpack_(text))
  stamp = stamp + 1
  local n = fmt('%.0f', item[1])
  call('HSET', 'lease', n, pack({ stamp, owner, site, c, 1, item, '', reason }))
  call('ZADD', 'deadline', fmt('%.0f', now + D.lease), n)
  out[#out + 1] = { n, stamp, c, site, item[2], item[3], item[4], item[5], item[6], item[7], reason }
end
if #out > 0 then append(tail, 'stamp', fmt('%.0f', stamp)) end
return reply(out)
