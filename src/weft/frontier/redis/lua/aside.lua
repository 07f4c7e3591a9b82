-- Takes leased items out that an edit has excluded, and brings them back.
--
-- ARGV: "out", (item stamp)*            leases for which nothing was sent
--       "back", crawl, items            reply: how many came back
local what = ARGV[3]
if what == 'out' then
  for i = 4, #ARGV, 2 do
    local n = ARGV[i]
    local text = call('HGET', 'lease', n)
    local rec = text and unpack_(text)
    if rec and rec[1] == tonumber(ARGV[i + 1]) then
      drop_lease(n)
      local s, k, item = load(rec[3]), crawl(rec[4]), rec[6]
      if rec[5] == 0 then s.active = s.active - 1 end
      leased(k, -1)
      if item[4] == 'p' then
        pages_out(s, k, -1)
        mark(k, item, 'q')
      end
      call('HSET', 'aside:' .. k.c, n, pack({ rec[3], item }))
      save(s)
      schedule(s)
    end
  end
  return reply()
end
local c, back = ARGV[4], 0
for i = 5, #ARGV do
  local text = call('HGET', 'aside:' .. c, ARGV[i])
  if text then
    local site, item = unpack(unpack_(text))
    call('HDEL', 'aside:' .. c, ARGV[i])
    local s = load(site)
    push_urgent(s, lane(s, c), item, 0, false)
    save(s)
    schedule(s)
    back = back + 1
  end
end
return reply(back)
