-- Ends all leases of an owner. Sites with a request in flight are due a full delay from now, and a little more, because its
-- last requests may still be in transit, or in the site's receive buffer.
--
-- ARGV: owner, or a slot and "#" for all of its incarnations but one, and that one (or empty).
-- Reply: the items whose requests were in flight.
local owner, but = ARGV[3], ARGV[4]
local IN_TRANSIT = 1000000
local whole = sub(owner, -1) == '#'
local mine, in_flight = {}, {}
local all = call('HGETALL', 'lease')
for i = 1, #all, 2 do
  local rec = unpack_(all[i + 1])
  local held = rec[2]
  if held ~= but and (held == owner or (whole and sub(held, 1, #owner) == owner)) then mine[#mine + 1] = rec end
end
-- Each goes to the head of its queue, so in descending order.
table.sort(mine, function(a, b) return a[6][1] > b[6][1] end)
for _, rec in ipairs(mine) do
  local n = fmt('%.0f', rec[6][1])
  drop_lease(n)
  if rec[5] == 0 and rec[8] == '' then in_flight[#in_flight + 1] = n end
  returned(rec, IN_TRANSIT)
end
return reply(in_flight)
