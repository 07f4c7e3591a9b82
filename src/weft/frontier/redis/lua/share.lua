-- Politeness by address: a claimed URL's site and all others of its address are one from now on.
--
-- ARGV: site, address. Reply: whether the address may be asked now.
local site, address = ARGV[3], ARGV[4]
local s = load(site)
if s.address == address then return reply(1) end
local there = call('EXISTS', 't:' .. address) == 1
local t = { site = site, lanes = s.lanes, address = address, fresh = false }
if there then
  local v = call('HMGET', 't:' .. address, 'u', 'a', 't')
  turn_of(t, v[1], v[2], v[3])
else
  turn_of(t, false, false, false)
  t.due, t.x, t.good, t.single, t.open, t.probes, t.failing = s.due, s.x, s.good, s.single, s.open, s.probes, s.failing
end
local may = not there or (t.due <= now and t.active < places(t))
t.active = t.active + s.active -- the lease that this is about
t.C = math.max(t.C, s.C)
call('HSET', 's:' .. site, 'T', address)
save(t)
return reply(may and 1 or 0)
