-- Rejects everything that is queued for a crawl at some sites. ARGV: crawl, sites.
for i = 4, #ARGV do
  local s = load(ARGV[i])
  local l = lane_of(s, ARGV[3])
  if l then
    reject(s, l, 'dropped')
    save(s)
    schedule(s)
  end
end
return reply()
