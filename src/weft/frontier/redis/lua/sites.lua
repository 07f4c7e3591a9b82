-- Sites: their politeness clocks, what they have shown, and when each crawl may claim from them. Behind common.lua, in front of
-- every script.

-- ── sites ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The sites that this script has read, and those to write at its end. A site with a shared clock is read again each time and
-- written at once, since another site may have changed that clock meanwhile.
local sites, changed = {}, {}

-- The line of a crawl in which a site waits.
local function line(c, s)
  return LINES[s.line] .. c
end

-- By what it did with its last requests.
local function shown(s)
  local recent = tonumber(match(s.pace or '', '^%d+'))
  if not recent then return UNKNOWN end
  return recent < SLOW_FROM and FINE or SLOW
end

-- A site waits in another line from now on, for all crawls.
local function move(s, to)
  for _, l in ipairs(s.lanes) do
    local from = line(l.c, s)
    local at = call('ZSCORE', from, s.site)
    if at then
      call('ZREM', from, s.site)
      call('ZADD', LINES[to] .. l.c, at, s.site)
    end
  end
  s.line = to
  call('HSET', 's:' .. s.site, 'c', to)
end

-- When something of a crawl may be due, whatever it has shown; nil: something must happen first.
local function first_of(c)
  local first = nil
  for at = FINE, UNKNOWN do
    local time = call('ZRANGE', LINES[at] .. c, 0, 0, 'WITHSCORES')[2]
    if time and time ~= 'inf' and (not first or tonumber(time) < first) then first = tonumber(time) end
  end
  return first
end

local function load(site)
  if sites[site] then return sites[site] end
  local v = call('HMGET', 's:' .. site, 'u', 'a', 't', 'T', 'L', 'b', 'e', 'l', 'c', 'o')
  local at_line = tonumber(v[9]) or UNKNOWN
  if v[4] then
    local t = call('HMGET', 't:' .. v[4], 'u', 'a', 't', 'b', 'e', 'l')
    v[1], v[2], v[3], v[6], v[7], v[8] = t[1], t[2], t[3], t[4], t[5], t[6]
  end
  local due, active, started, ended = tonumber(v[1]) or 0, tonumber(v[2]) or 0, tonumber(v[6]) or 0, tonumber(v[7]) or 0
  local lanes = {}
  -- Made with all its fields at once: a table that grows is copied each time.
  local s = { site = site, lanes = lanes, fresh = not v[5], address = v[4] or nil, has_moved = false, later = nil,
    due = due, active = active, started = started, ended = ended,
    due_was = due, started_was = started, ended_was = ended,
    line = at_line, C = 0, x = 0, good = 0, single = 0, lag = 0, rare = v[3], pace = v[8],
    pace_was = v[8], breakers = v[10] and unpack_(v[10]) or nil, has_new_breakers = false }
  if v[3] then
    -- Between them an older version had the breaker of the whole site.
    local C, x, g, single, lag = match(v[3], '(%d+):(%d+):(%d+):(%d):%d+:%d+:[%d,%-]*:?(%d*)')
    s.C, s.x, s.good, s.single, s.lag = tonumber(C), tonumber(x), tonumber(g), tonumber(single), tonumber(lag) or 0
  end
  if v[5] then
    for c, q, n, p, f, k, d, w, out in string.gmatch(v[5], '(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):([%dw.]*):?(%d*)(%-?);') do
      lanes[#lanes + 1] = { c = c, q = tonumber(q), n = tonumber(n), p = tonumber(p), f = tonumber(f), k = k, d = d,
        w = tonumber(w) or 0, is_out = out == '-' }
    end
  end
  if not s.address then
    sites[site] = s
  elseif shown(s) ~= at_line then
    move(s, shown(s)) -- another site has changed what their address has shown
  end
  return s
end

-- Writes what has changed. A lane: crawl, queued, of them urgent, pages, pages in flight, version of its cookies, depths; and
-- where several crawls are here, when it was last served or, empty since, began to wait, and "-" while it has no time in
-- the crawl's line.
local function write(s)
  local rare = nil
  -- Whoever has a Crawl-delay or an extra delay has one place alone.
  if s.single > 0 or s.lag > 0 then
    rare = fmt('%.0f:%.0f:%d:%d:0:0:', s.C, s.x, s.good, s.single) .. (s.lag > 0 and fmt(':%.0f', s.lag) or '')
  end
  if s.has_new_breakers then
    if s.breakers and next(s.breakers) then
      call('HSET', 's:' .. s.site, 'o', pack(s.breakers))
    else
      call('HDEL', 's:' .. s.site, 'o')
    end
    s.has_new_breakers = false
  end
  local home = s.address and ('t:' .. s.address) or ('s:' .. s.site)
  local out, n = { 'a', s.active }, 2
  if s.due ~= s.due_was then out[n + 1], out[n + 2], n = 'u', fmt('%.0f', s.due), n + 2 end
  if s.started ~= s.started_was then out[n + 1], out[n + 2], n = 'b', fmt('%.0f', s.started), n + 2 end
  if s.ended ~= s.ended_was then out[n + 1], out[n + 2], n = 'e', fmt('%.0f', s.ended), n + 2 end
  if rare and rare ~= s.rare then
    out[n + 1], out[n + 2], n = 't', rare, n + 2
  elseif s.rare and not rare then
    call('HDEL', home, 't')
  end
  s.rare = rare
  if s.pace ~= s.pace_was then
    out[n + 1], out[n + 2], n = 'l', s.pace, n + 2
    s.pace_was = s.pace
  end
  s.due_was, s.started_was, s.ended_was = s.due, s.started, s.ended
  if s.fresh then out[n + 1], out[n + 2], n = 'c', s.line, n + 2 end
  if s.fresh or s.has_moved then
    local lanes = ''
    for _, l in ipairs(s.lanes) do
      lanes = lanes .. l.c .. ':' .. l.q .. ':' .. l.n .. ':' .. l.p .. ':' .. l.f .. ':' .. l.k .. ':' .. l.d
        .. (l.w == 0 and ';' or fmt(l.is_out and ':%.0f-;' or ':%.0f;', l.w))
    end
    if s.address then
      call('HSET', 's:' .. s.site, 'L', lanes)
    else
      out[n + 1], out[n + 2] = 'L', lanes
    end
  end
  call('HSET', home, unpack(out))
  if s.fresh then count('sites', 1) end
end

-- Writes a site at once; the next `load` reads it again.
local function settle(s)
  sites[s.site], changed[s.site] = nil, nil
  write(s)
end

-- For a caller that has changed its clock alone.
local function save_clock(s)
  if s.address then
    settle(s)
  else
    changed[s.site] = s
  end
end

local function save(s)
  s.has_moved = true
  save_clock(s)
end

local function lane_of(s, c)
  for _, l in ipairs(s.lanes) do
    if l.c == c then return l end
  end
end

local function lane(s, c)
  local l = lane_of(s, c)
  if l then return l end
  l = { c = c, q = 0, n = 0, p = 0, f = 0, k = '0', d = '', w = 0 }
  s.lanes[#s.lanes + 1] = l
  if #s.lanes > 1 then
    -- From now on it counts how long each of them waits.
    for _, one in ipairs(s.lanes) do
      if one.w == 0 then one.w, one.is_out = now, true end
    end
  end
  return l
end

-- Pages of a crawl that are out: all of them, and those of a site, which are counted whether it has a budget or not, as it may
-- be given one. Not below nought: an older version counted only where there was one.
local function pages_out(s, k, by)
  flight(k, by)
  local l = lane(s, k.c)
  l.f = math.max(0, l.f + by)
end

-- Politeness towards a site, for a crawl with the section `d`. What the site asked for binds all of them.
local function delay_of(s, d)
  if d.delay > 0 then
    -- A site that has several requests at once answers that many in the time that one takes.
    local lag = s.single > 0 and s.lag or math.ceil(s.lag / d.places)
    return math.max(d.delay, s.C, s.x, lag)
  end
  return math.max(d.delay, s.C, s.x)
end

local function places(s, d)
  if s.single > 0 then return 1 end
  return d.places
end

-- The crawl's delay counts from the end of the last request, whosever it was, or from its start where it may have several.
local function due_for(s, d)
  local last = s.started
  if places(s, d) == 1 then last = s.ended end
  if last == 0 then return s.due end
  return math.max(s.due, last + delay_of(s, d))
end

local function ended(s, at)
  s.ended = math.max(s.ended, at)
end

-- How long an answer took: microseconds, or "-" where there was none. The field `l` is an average over the last few ("-": it
-- did not answer the last time) and one over many. The rule is that of `PolitenessClock.took`: a site whose answers take
-- several times as long as they used to is asked no more often than it answers, until that has passed or has become usual.
local function took(s, d, time)
  local recent, usual = match(s.pace or '', '^(.*):(%d+)$')
  time, recent = tonumber(time), tonumber(recent)
  if not time then
    if usual then s.pace = '-:' .. usual end
    return
  end
  usual = tonumber(usual) or time
  usual = usual + (time - usual) / 64
  recent = recent and recent + (time - recent) / 4 or time
  s.pace = fmt('%.0f:%.0f', recent, usual)
  local lag = recent > 1000000 and recent > 3 * usual and math.min(SLOWEST, math.floor(recent + 0.5)) or 0
  if lag < s.lag then s.due = math.max(s.due, due_for(s, d)) end -- the shorter delay counts from the next request on
  s.lag = lag
end

-- The site asked for fewer requests. `slow`: 1 a limit that it has, 2 a fault of its own.
local function slow_down(s, d, at, slow, retry_after)
  s.good, s.single = 0, slow
  s.x = math.min(SLOWEST, math.max(2 * delay_of(s, d), 1000000))
  -- The delay counts from the end anyway. A longer Retry-After is not waited for: what is queued is rejected.
  s.due = math.max(s.due, at + math.min(retry_after, d.longest or retry_after))
end

-- A good answer of a slowed site: its extra delay becomes half after EASE_AFTER of them; a fault passes at once, to a quarter.
local function ease(s, d)
  s.good = s.good + 1
  if s.single == 2 or s.good % EASE_AFTER == 0 then
    s.due = math.max(s.due, due_for(s, d)) -- the shorter delay counts from the next request on
    local times = s.single == 2 and 4 or 2
    s.x = s.x > times * d.delay and s.x / times or 0
  end
end

local function urgent_first(l, site, low, high)
  local best = nil
  for _, kind in ipairs({ 'r:', 'u:', 'm:' }) do
    local v = call('ZRANGEBYSCORE', kind .. l.c .. ':' .. site, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
    if v[2] and (not best or tonumber(v[2]) < best) then best = tonumber(v[2]) end
  end
  return best
end

-- The origin's code at the front of `rest`: one byte for the usual ones.
local function origin_of(rest)
  local kind = string.byte(rest, 1)
  if kind < 4 then return sub(rest, 1, 1) end
  return sub(rest, 1, 3 + string.byte(rest, 2) * 256 + string.byte(rest, 3))
end

-- The host and port of an origin.
local function authority(site, code)
  local kind = string.byte(code, 1)
  if kind < 2 then return site end
  if kind < 4 then return 'www.' .. site end
  if kind < 6 then return sub(code, 4) .. site end
  return match(sub(code, 4), '://(.*)$')
end

-- When something may run in a lane that has something queued, apart from the politeness clock.
local function next_time(s, l)
  if l.q > l.n then return 0 end
  return urgent_first(l, s.site, '-inf', '+inf')
end

-- The earliest times that this script has put into the lines, by crawl, and how often it has put a site that is due.
local soonest, put_due = {}, {}

-- Sets when a crawl may claim from a site; nil: something must happen first. A lane with nothing queued is in no line.
local function put(k, s, l, at)
  if l.w > 0 and l.is_out ~= (at == nil) then
    l.is_out = at == nil
    save(s)
  end
  if at then
    call('ZADD', line(k.c, s), fmt('%.0f', at), s.site)
    local first = soonest[k.c]
    if not first or at < first then soonest[k.c] = at end
    if at <= now then put_due[k.c] = (put_due[k.c] or 0) + 1 end
  elseif l.q == 0 then
    call('ZREM', line(k.c, s), s.site)
  else
    call('ZADD', line(k.c, s), 'inf', s.site)
  end
end

-- Schedules the lanes that have a place; returns when the first of them may run, apart from the clock. Of several crawls only
-- those that have no time: one that is there is early enough, as clocks only move on. `all`: it may be too late.
local function enter(s, all)
  local best = nil
  for _, l in ipairs(s.lanes) do
    local k = crawl(l.c)
    if l.q > 0 then
      if l.w > 0 and not l.is_out and not all then
        best = 0
      elseif s.active < places(s, k.D) then
        local at = next_time(s, l)
        put(k, s, l, at and math.max(due_for(s, k.D), at))
        if at and (not best or at < best) then best = at end
      else
        call('ZADD', line(k.c, s), 'NX', 'inf', s.site)
      end
    end
  end
  return best
end

-- Schedules as many of the sites that wait for a shared clock as it has free places, chosen at random: of a thousand at one
-- address not all at once, and none always first.
local function wake(s)
  local room = places(s, D) - s.active
  while room > 0 do
    local other = call('SPOP', 'P:' .. s.address)
    if not other then return end
    local o = load(other)
    local at = enter(o)
    if at and at <= math.max(due_for(o, D), now) then room = room - 1 end
  end
end

-- Sets when each crawl may claim from a site. Where its places are all in use, whoever comes to it puts it off.
local function schedule(s, all)
  if not s.address then
    enter(s, all)
    return
  end
  for _, l in ipairs(s.lanes) do
    put(crawl(l.c), s, l, nil)
    if l.q > 0 then call('SADD', 'P:' .. s.address, s.site) end
  end
  wake(s)
end
