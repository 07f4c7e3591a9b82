-- Whether something that is queued of a crawl at these sites is within its budget. ARGV: crawl, sites. Reply: 1 or 0.
local k = crawl(ARGV[3])
for i = 4, #ARGV do
  local l = lane_of(load(ARGV[i]), ARGV[3])
  if l and l.q > 0 and not (k.cap and l.p + l.f >= k.cap) then return reply(1) end
end
return reply(0)
