-- Pages that a site has had of crawls, as the store tells them; it counts only where nothing is known here.
--
-- ARGV: site, pages, crawls.
local s = load(ARGV[3])
for i = 5, #ARGV do
  local l = lane(s, ARGV[i])
  if l.p == 0 then l.p = tonumber(ARGV[4]) end
end
save(s)
schedule(s)
return reply()
