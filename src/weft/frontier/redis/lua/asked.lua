-- Parts of rendered pages were requested: their sites are due no earlier than a delay after the last of them ended.
--
-- ARGV: (site, age)*; age: microseconds since a request ended
for i = 3, #ARGV, 2 do
  local s = load(ARGV[i])
  local at = now - tonumber(ARGV[i + 1])
  s.started = math.max(s.started, at)
  ended(s, at)
  save_clock(s)
  schedule(s)
end
return reply()
