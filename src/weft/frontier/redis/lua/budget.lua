-- Sets the number of a site's stored pages from the store, where there is no count here.
--
-- ARGV: site, pages, crawls.
local s = load(ARGV[3])
for i = 5, #ARGV do
  local l = lane(s, ARGV[i])
  if l.p == 0 then l.p = tonumber(ARGV[4]) end
end
save(s)
schedule(s, true)
return reply()
