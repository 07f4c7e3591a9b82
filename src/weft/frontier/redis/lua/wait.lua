-- Politeness by address: ends leases that did not get a place of their address, as if they had not been claimed. Their sites
-- wait, and share one clock with the other sites of that address in this pod from now on, so that not all of them try.
--
-- ARGV: (item stamp address wait)*; wait in microseconds, or "x": a Retry-After above the maximum.
local function join(s, address)
  -- Other requests in flight count in the clock that they were claimed under.
  if s.address == address or s.active > 0 then return s end
  settle(s)
  call('HSET', 's:' .. s.site, 'T', address)
  if s.address then
    call('SREM', 'P:' .. s.address, s.site)
    wake(s)
  end
  local t = load(s.site)
  t.C, t.x, t.single, t.due = math.max(t.C, s.C), math.max(t.x, s.x), math.max(t.single, s.single), math.max(t.due, s.due)
  t.started, t.ended = math.max(t.started, s.started), math.max(t.ended, s.ended)
  if not t.pace then t.pace, t.lag = s.pace, s.lag end
  return t
end

for i = 3, #ARGV, 4 do
  local n, wait = ARGV[i], ARGV[i + 3]
  local text = call('HGET', 'lease', n)
  local rec = text and unpack_(text)
  if rec and rec[1] == tonumber(ARGV[i + 1]) then
    drop_lease(n)
    local s = load(rec[3])
    s.active = s.active - 1
    s = join(s, ARGV[i + 2])
    give_back(s, rec[4], rec[6], 0, true)
    if wait == 'x' then
      reject_site(s, 'retry-after')
    else
      s.due = math.max(s.due, now + tonumber(wait))
    end
    save(s)
    schedule(s)
  end
end
return reply()
