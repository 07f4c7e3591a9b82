-- Gives back all that an owner holds: what it was asking is due a full delay from now, and a little more, because what it
-- sent in its last moment is still on its way, or waits at the site to be read.
--
-- ARGV: owner, or a slot and "#" for all of its incarnations but one, and that one (or empty).
-- Reply: the items whose requests were under way.
local owner, but = ARGV[3], ARGV[4]
local ON_ITS_WAY = 1000000
local whole = sub(owner, -1) == '#'
local mine, under_way = {}, {}
local all = call('HGETALL', 'lease')
for i = 1, #all, 2 do
  local rec = unpack_(all[i + 1])
  local held = rec[2]
  if held ~= but and (held == owner or (whole and sub(held, 1, #owner) == owner)) then mine[#mine + 1] = rec end
end
-- Each goes to the head, so the last comes first.
table.sort(mine, function(a, b) return a[6][1] > b[6][1] end)
for _, rec in ipairs(mine) do
  local n = fmt('%.0f', rec[6][1])
  drop_lease(n)
  if rec[5] == 0 and rec[8] == '' then under_way[#under_way + 1] = n end
  returned(rec, ON_ITS_WAY)
end
return reply(under_way)
