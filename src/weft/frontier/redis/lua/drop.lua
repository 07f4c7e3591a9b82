-- Rejects everything that is queued for a crawl at some sites. ARGV: crawl, sites.
for i = 4, #ARGV do
  local s = load(ARGV[i])
  for _, l in ipairs(s.lanes) do
    if l.c == ARGV[3] then reject(s, l, 'dropped') end
  end
  save(s)
  schedule(s)
end
return reply()
