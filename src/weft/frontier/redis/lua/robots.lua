-- Sets the expiry, version and Crawl-delay of origins' robots.txt. The bodies are on disk.
--
-- ARGV: (site, origin's code, microseconds until it expires or "-" to forget it, crawl delay or 0, version)*
for i = 3, #ARGV, 5 do
  local site, code, ttl, delay = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local key = 's:' .. site
  local s = load(site)
  if ttl == '-' then
    call('HDEL', key, 'r' .. code)
  else
    call('HDEL', key, 'R' .. code)
    call('HSET', key, 'r' .. code, fmt('%.0f:%s', math.max(0, math.min(now + tonumber(ttl), 9e15)), ARGV[i + 4]))
  end
  if delay > s.C then
    s.C, s.single = delay, math.max(s.single, 1)
    -- The request for robots.txt has already ended, and set `due` with the shorter delay.
    s.due = math.max(s.due, now + delay)
  end
  save_clock(s)
  schedule(s, true)
end
return reply()
