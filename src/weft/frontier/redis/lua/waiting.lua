-- What a crawl waits for that has something queued and nothing in flight: of the site that is due first. Changes nothing.
--
-- ARGV: crawl. Reply: the cause ("" where it does not wait, or for a moment only), the site or the host and port that it is
-- about, and until when (empty: an event must come).
local SHORT = 2000000
local c = ARGV[3]
local k = crawl(c)

local function first_site()
  local site, at = nil, nil
  for line_of = FINE, UNKNOWN do
    local one = call('ZRANGE', LINES[line_of] .. c, 0, 0, 'WITHSCORES')
    local time = one[2] and (one[2] == 'inf' and math.huge or tonumber(one[2]))
    if time and (not at or time < at) then site, at = one[1], time end
  end
  return site, at
end

-- What is behind the clock of the site: a breaker, a robots.txt, or something that is tried again.
local function own_cause(s, at)
  local first = nil
  for code, b in pairs(s.breakers or {}) do
    if b[1] > now and b[1] <= at and (not first or b[1] < s.breakers[first][1]) then first = code end
  end
  if first then return { 'breaker', authority(s.site, first), s.breakers[first][1] } end
  local robots = call('ZRANGE', 'r:' .. c .. ':' .. s.site, 0, 0, 'WITHSCORES')[2]
  if at == math.huge or (robots and tonumber(robots) == at) then return { 'robots', s.site, at } end
  return { 'retry', s.site, at }
end

local function clock_cause(s, at)
  if s.x == 0 or s.due < at then return { 'delay', s.site, at } end
  return { s.due > s.ended + s.x + 1000 and 'retry-after' or 'slow', s.site, at }
end

local function cause()
  if k.is_gone or k.leased > 0 or k.queued == 0 then return { '', '', math.huge } end
  if k.paused then return { 'paused', '', math.huge } end
  local site, at = first_site()
  if not site or at <= now + SHORT then return { '', '', math.huge } end
  local s = load(site)
  local due = due_for(s, k.D)
  if at > due then return own_cause(s, at) end
  return clock_cause(s, at)
end

local found = cause()
return reply(found[1], found[2], found[3] < math.huge and fmt('%.0f', found[3]) or '')
