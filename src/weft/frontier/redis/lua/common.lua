-- What all scripts of the frontier share; prepended to each of them.
--
-- Times are whole microseconds of the pod's clock; items are numbered within the pod (a number below zero is transient).
-- ARGV[1]: the time, for tests that move the clock; empty: the server's. ARGV[2]: the politeness section.
--
--   n                 hash   counters: item, transient, seq, stamp, ops, epoch, queued, admitted, finished, sent, received,
--                            sites, crawl; last, offset: keep the time from running backwards; turn: how far the crawl
--                            is that was served last; lost: when its data was found incomplete, losses: how often
--   state             hash   run (of the server)
--   c:CRAWL           hash   name, seed, limits, section (its politeness), weight, pages, flight, queued, leased, paused,
--                            given; ended (1: not confirmed, 2: for good); moving: its sites are yet to be scheduled anew;
--                            size, split, seen of its seen set; swept: how far that is deleted
--   crawls, numbers   hashes name -> number; number -> name of each crawl that is kept;  twins hash name -> an older crawl
--                            of a name that is taken;  closing hash crawl -> slot that has ended it;  over set of crawls
--                            that have ended for good
--   soon, ring        zsets  crawl -> a time before which nothing of it is due; those with something due, by stride
--   stride            hash   crawl -> how far it has been served, by its weight
--   aside:CRAWL       hash   item -> record, excluded by an edit;  held:CRAWL list, its rejected while its end may be undone
--   e:CRAWL:BUCKET    set    fingerprints, small integer sets, split by linear hashing
--   b:CRAWL:PIECE     string the pieces of a Bloom filter, where there is one instead
--   k:CRAWL:BUCKET    hash   fingerprint -> item:depth:state, only with a max_depth
--   due: slow: unknown:      CRAWL: every site where something of it is queued -> when it may be claimed from, or earlier
--                     zsets  (checked at the claim); infinite: something must happen first. Three lines, by what a site has
--                            shown: it answers, it is slow, it has never answered or not the last time
--   s:SITE            hash   u not before this, b and e start and end of the last request, a active, t rare state of its
--                            politeness clock, l how long it takes to answer, c the line it is in, T address of a shared
--                            clock, L lanes;
--                            rORIGIN expiry:version of a robots.txt, RORIGIN it is being fetched (-CRAWL: by that crawl,
--                            or a time until which nobody asks);
--                            mCRAWL sitemaps admitted, MCRAWL the last item was a sitemap
--   t:ADDRESS         hash   u, b, e, a, t, l of a clock that sites share;  P:ADDRESS set, the sites that wait for a place of it
--   a:ADDRESS, held          the places of addresses, for all pods: address.lua
--   q: w: g:          lists  CRAWL:DEPTH:SITE: head of a queue, its tail, and between them the segments on disk
--   u: r: m:          zsets  CRAWL:SITE: urgent entries, robots.txt, and sitemaps, by the time before which they must not run
--   lease             hash   item -> record;  deadline zset item -> when it expires
--   parse             list   items fetched, not parsed;  fetched hash item -> record;  deaths hash item -> parsers killed
--   prep:SLOT:BATCH   hash   item -> record, ended for a batch of that slot;  preps:SLOT zset of batches;
--                            slots hash slot -> last acknowledged batch
--   pages:CRAWL       hash   slot -> pages stored
--   blocked:CRAWL     zset   sites that wait for a permit
--   long, low         sets   queues to spill, queues to refill
--   rejects, rejected lists  whole queues that were rejected; single rejected items;  x:NUMBER such a queue
--   crew, settling    sets   the pod's slots; those that have not reported, after a loss, what their stores have
--   gone              set    stored items whose end was lost with the server's data
local call, fmt, find, sub, match = redis.call, string.format, string.find, string.sub, string.match
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack
local SETTLE, LONGEST, SLOWEST = 10000000, 60000000, 60000000
local FINE, SLOW, UNKNOWN, SLOW_FROM = 0, 1, 2, 2000000 -- what a site has shown; an answer takes this long where it is slow
local LINES = { [0] = 'due:', 'slow:', 'unknown:' }
local MIDDLE = 70368744177664 -- 2^46: urgent entries are numbered upwards from here, those for the head downwards

-- What every script needs is read at its beginning and written at its end, in one call each: calls cost more than fields.
local head = call('HMGET', 'n', 'ops', 'last', 'offset', 'item', 'stamp', 'turn', 'lost', 'losses')
local tail = { 'ops', (tonumber(head[1]) or 0) + 1 } -- fields of `n`, and their values

local function append(list, a, b)
  list[#list + 1] = a
  if b then list[#list + 1] = b end
end

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
do
  if not head[2] then
    -- An earlier version kept these in hashes of their own.
    local kept, state = call('HMGET', 'clock', 'last', 'offset'), call('HMGET', 'state', 'lost', 'losses')
    head[2], head[3], head[7], head[8] = kept[1], kept[2], state[1], state[2]
    if head[3] then append(tail, 'offset', head[3]) end
    if head[7] then append(tail, 'lost', head[7]) end
    if head[8] then append(tail, 'losses', head[8]) end
  end
  local last, offset = tonumber(head[2]) or 0, tonumber(head[3]) or 0
  now = now + offset
  if now < last then
    append(tail, 'offset', fmt('%.0f', offset + last - now))
    now = last
  end
  append(tail, 'last', fmt('%.0f', now))
end
local lost, losses = tonumber(head[7]) or 0, tonumber(head[8]) or 0
local delta = {}

-- After a loss of data the slots' processes restart and report what their stores have. Until all have, nothing is leased and
-- no batch of another pod is admitted, or stored pages would be fetched again. After LONGEST missing slots are ignored.
local function is_settling()
  return lost > 0 and now < lost + LONGEST and call('EXISTS', 'settling') == 1
end

-- Events of sites for the caller's log, three entries each: event, site, number. Nearly always empty.
local happened = {}

local function happens(what, site, number)
  happened[#happened + 1] = what
  happened[#happened + 1] = site
  happened[#happened + 1] = fmt('%.0f', number)
end

local function count(name, by)
  delta[name] = (delta[name] or 0) + by
end

-- Politeness sections by their text: the caller's (D), and those of crawls that have their own.
local sections = {}

local function section(text)
  local d = sections[text]
  if not d then
    local delay, places, lease, failures, reset, probes, longest =
      match(text, '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)')
    d = { delay = tonumber(delay), places = tonumber(places), lease = tonumber(lease), failures = tonumber(failures),
      reset = tonumber(reset), probes = tonumber(probes), longest = tonumber(longest) }
    sections[text] = d
  end
  return d
end

local D = section(ARGV[2])

-- ── crawls ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local crawls = {}

-- `is_gone`: nothing is kept of it. `is_over`: it has ended for good. `ended`: either, or an end that may be undone.
local function crawl(c)
  local k = crawls[c]
  if not k then
    local v = call('HMGET', 'c:' .. c, 'pages', 'flight', 'paused', 'max', 'cap', 'depth', 'inflight', 'given',
      'size', 'split', 'seen', 'bloom', 'maps', 'queued', 'leased', 'section', 'weight', 'ended')
    local paused, max, inflight = v[3] == '1', tonumber(v[4]), tonumber(v[7])
    local is_over = not v[12] or v[18] == '2'
    k = { c = c, pages = tonumber(v[1]) or 0, flight = tonumber(v[2]) or 0, paused = paused, max = max,
      cap = tonumber(v[5]), depths = v[6] and v[6] ~= '', inflight = inflight, given = tonumber(v[8]),
      size = tonumber(v[9]) or 16, split = tonumber(v[10]) or 0, seen = tonumber(v[11]) or 0, bloom = v[12] or '',
      maps = tonumber(v[13]), queued = tonumber(v[14]) or 0, leased = tonumber(v[15]) or 0,
      D = v[16] and section(v[16]) or D, weight = tonumber(v[17]) or 1, is_gone = not v[12], dflight = 0,
      changed = false, dseen = false, is_over = is_over, ended = is_over or v[18] == '1',
      limited = paused or max or inflight }
    crawls[c] = k
  end
  return k
end

local function permits(k)
  if k.paused or k.ended then return 0 end
  local left = 1000000000
  if k.max then
    left = (k.given or k.max) - k.pages - k.flight
  end
  if k.inflight then left = math.min(left, k.inflight - k.flight) end
  return left
end

local function flight(k, by)
  k.flight = k.flight + by
  k.dflight = k.dflight + by
  k.changed = true
end

-- Items of it that are out: leased, or fetched and not parsed.
local function leased(k, by)
  k.leased = k.leased + by
  k.changed = true
end

local function queued(k, by)
  k.queued = k.queued + by
  k.changed = true
  if not k.ended then count('queued', by) end
end

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
  local v = call('HMGET', 's:' .. site, 'u', 'a', 't', 'T', 'L', 'b', 'e', 'l', 'c')
  -- One that an older version has written is in the first line; what is new is unknown.
  local at_line = tonumber(v[9]) or v[5] and FINE or UNKNOWN
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
    line = at_line, C = 0, x = 0, good = 0, single = 0, open = 0, probes = 0, failing = '', lag = 0, rare = v[3], pace = v[8],
    pace_was = v[8] }
  if v[3] then
    local C, x, g, single, open, probes, failing, lag =
      match(v[3], '(%d+):(%d+):(%d+):(%d):(%d+):(%d+):([%d,%-]*):?(%d*)')
    s.C, s.x, s.good, s.single = tonumber(C), tonumber(x), tonumber(g), tonumber(single)
    s.open, s.probes, s.failing, s.lag = tonumber(open), tonumber(probes), failing, tonumber(lag) or 0
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
  if s.C > 0 or s.x > 0 or s.single > 0 or s.open > 0 or s.probes > 0 or s.failing ~= '' or s.lag > 0 then
    rare = fmt('%.0f:%.0f:%d:%d:%.0f:%d:%s', s.C, s.x, s.good, s.single, s.open, s.probes, s.failing)
      .. (s.lag > 0 and fmt(':%.0f', s.lag) or '')
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
      out[n + 1], out[n + 2], n = 'L', lanes, n + 2
    end
  end
  call('HSET', home, unpack(out))
  if s.fresh then
    s.fresh = false
    count('sites', 1)
  end
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
  if k.is_over then return end
  local l = lane(s, k.c)
  l.f = math.max(0, l.f + by)
end

-- Politeness towards a site, for a crawl with the section `d`. What the site asked for binds all of them.
local function delay_of(s, d)
  if s.lag > 0 and d.delay > 0 then return math.max(d.delay, s.C, s.x, s.lag) end
  return math.max(d.delay, s.C, s.x)
end

local function places(s, d)
  if s.single > 0 or s.open > 0 then return 1 end
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

-- When something may run in a lane, apart from the politeness clock.
local function next_time(s, l)
  if l.q > l.n then return 0 end
  if l.n > 0 then return urgent_first(l, s.site, '-inf', '+inf') end
end

-- The earliest times that this script has put into the lines, by crawl.
local soonest = {}

-- Sets when a crawl may claim from a site; nil: something must happen first. A lane with nothing queued is in no line, but
-- where there are cookies to be deleted with it.
local function put(k, s, l, at)
  if l.w > 0 and l.is_out ~= (at == nil) then
    l.is_out = at == nil
    save(s)
  end
  if at then
    call('ZADD', line(k.c, s), fmt('%.0f', at), s.site)
    local first = soonest[k.c]
    if not first or at < first then soonest[k.c] = at end
  elseif l.q == 0 and l.k == '0' then
    call('ZREM', line(k.c, s), s.site)
  else
    call('ZADD', line(k.c, s), 'inf', s.site)
  end
end

-- Schedules the lanes that have a place; returns when the first of them may run, apart from the clock. Of several crawls only
-- those that have no time: one that is there is early enough, as clocks only move on. `all`: it may be too late.
local function enter(s, all)
  local best = nil
  for i = #s.lanes, 1, -1 do
    local l = s.lanes[i]
    local k = crawl(l.c)
    if k.is_over and l.q == 0 and l.k == '0' then
      -- Whatever it had more was deleted by forget.lua.
      table.remove(s.lanes, i)
      call('HDEL', 's:' .. s.site, 'm' .. l.c, 'M' .. l.c)
      save(s)
    elseif l.q > 0 and not k.ended then
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
    local k = crawl(l.c)
    if not k.ended then
      put(k, s, l, nil)
      if l.q > 0 then call('SADD', 'P:' .. s.address, s.site) end
    end
  end
  wake(s)
end

-- ── depths, with a max_depth ─────────────────────────────────────────────────────────────────────────────────────────

local function known_key(c, fp)
  return 'k:' .. c .. ':' .. (tonumber(sub(match(fp, '%d+$'), -12)) % 16384)
end

local function known(c, fp)
  local v = call('HGET', known_key(c, fp), fp)
  if not v then return nil end
  local n, depth, state = match(v, '(-?%d+):(%d+):(%a)')
  return { n = tonumber(n), depth = tonumber(depth), state = state }
end

local function know(c, fp, n, depth, state)
  call('HSET', known_key(c, fp), fp, fmt('%.0f', n) .. ':' .. depth .. ':' .. state)
end

-- ── items ───────────────────────────────────────────────────────────────────────────────────────────────────────────
-- An item: { number, depth, hops, purpose, attempt, about, rest, fingerprint }. `rest` is the client's: origin, parent, path.

local function mark(k, item, state)
  if k.depths and item[4] == 'p' and item[8] ~= '' then
    local is = known(k.c, item[8])
    if is and is.n == item[1] then know(k.c, item[8], is.n, is.depth, state) end
  end
end

local function push_urgent(s, l, item, not_before, first)
  local seq = call('HINCRBY', 'n', 'seq', 1)
  local kind = item[4] == 'r' and 'r:' or item[4] == 's' and 'm:' or 'u:'
  local member = struct.pack('>I6', first and MIDDLE - seq or MIDDLE + seq) .. pack(item)
  call('ZADD', kind .. l.c .. ':' .. s.site, fmt('%.0f', not_before), member)
  l.q, l.n, l.is_out = l.q + 1, l.n + 1, true -- it may run earlier than what waits
  queued(crawl(l.c), 1)
end

-- An item that was out goes back to its queue; nothing of a crawl that has ended for good does.
local function give_back(s, c, item, not_before, first)
  local k = crawl(c)
  leased(k, -1)
  if item[4] == 'p' then pages_out(s, k, -1) end
  if k.is_over then
    if item[4] == 'r' and item[6] == '' then
      -- Other crawls may need it; they ask when its time has come.
      call('HSET', 's:' .. s.site, 'R' .. origin_of(item[7]), fmt('%.0f', not_before))
    end
    return
  end
  if item[4] == 'p' and k.depths and item[8] ~= '' then
    local is = known(c, item[8])
    if is and is.n == item[1] then
      know(c, item[8], is.n, is.depth, 'q')
      if is.depth < item[2] then item[2] = is.depth end
    end
  end
  push_urgent(s, lane(s, c), item, not_before, first)
end

-- Runs one command for many members, or pairs of them: a call from Lua costs more than the command itself.
local MANY = 1000

local function many(command, key, list)
  for at = 1, #list, MANY do
    call(command, key, unpack(list, at, math.min(at + MANY - 1, #list)))
  end
end

-- The fields of a hash, false where there is none.
local function fields(key, names)
  local values = {}
  for at = 1, #names, MANY do
    for i, value in ipairs(call('HMGET', key, unpack(names, at, math.min(at + MANY - 1, #names)))) do
      values[names[at + i - 1]] = value
    end
  end
  return values
end

-- A record of a lease: { stamp, owner, site, crawl, cooled, item, reference, reason }
local function drop_lease(n)
  call('HDEL', 'lease', n)
  call('ZREM', 'deadline', n)
end

-- Puts an item whose lease ended back: into its queue, the parse queue, or the rejected. The caller has deleted the lease.
-- `margin`: how long after now the request may still reach its site.
local function returned(rec, margin)
  local n = fmt('%.0f', rec[6][1])
  if rec[8] ~= '' then
    call('RPUSH', 'rejected', pack({ rec[4], rec[8], rec[3], rec[6] }))
  elseif rec[7] ~= '' then
    call('HSET', 'fetched', n, pack(rec))
    call('LPUSH', 'parse', n)
  else
    local s = load(rec[3])
    if rec[5] == 0 then
      s.active = s.active - 1
      ended(s, now + (delay_of(s, crawl(rec[4]).D) > 0 and margin or 0))
    end
    give_back(s, rec[4], rec[6], 0, true)
    save(s)
    schedule(s)
  end
end

-- Empties a lane by renaming whole queues; rejected.lua leases their items in pieces.
local function reject(s, l, reason)
  if l.q == 0 then return end
  local where = l.c .. ':' .. s.site
  for _, m in ipairs(call('ZRANGE', 'r:' .. where, 0, -1)) do
    local item = unpack_(sub(m, 7))
    call('HDEL', 's:' .. s.site, 'R' .. origin_of(item[7]))
  end
  call('DEL', 'r:' .. where)
  for _, kind in ipairs({ 'u:', 'm:' }) do
    for _, m in ipairs(call('ZRANGE', kind .. where, 0, -1)) do
      call('RPUSH', 'rejected', pack({ l.c, reason, s.site, unpack_(sub(m, 7)) }))
    end
    call('DEL', kind .. where)
  end
  for d in string.gmatch(l.d, '(%d+)') do
    local queue = l.c .. ':' .. d .. ':' .. s.site
    for _, kind in ipairs({ 'q:', 'g:', 'w:' }) do
      if call('EXISTS', kind .. queue) == 1 then
        local name = 'x:' .. call('HINCRBY', 'n', 'seq', 1)
        call('RENAME', kind .. queue, name)
        call('RPUSH', 'rejects', pack({ name, kind == 'g:' and 'segments' or 'entries', l.c, d, s.site, reason, queue }))
      end
    end
    call('SREM', 'long', queue)
    call('SREM', 'low', queue)
  end
  queued(crawl(l.c), -l.q)
  happens(reason, s.site, l.q)
  l.q, l.n, l.d = 0, 0, ''
  s.has_moved = true
  put(crawl(l.c), s, l, nil)
end

-- What an ended crawl has here is left to whoever deletes it, or undoes its end.
local function reject_site(s, reason)
  for _, l in ipairs(s.lanes) do
    if not crawl(l.c).ended then reject(s, l, reason) end
  end
end

local function unblock(k, most)
  if not k.limited then return end
  local may = math.min(permits(k), most)
  if may <= 0 then return end
  local waiting = call('ZPOPMIN', 'blocked:' .. k.c, may)
  for i = 1, #waiting, 2 do schedule(load(waiting[i]), true) end
end

-- ── the end of every script ─────────────────────────────────────────────────────────────────────────────────────────

-- `ZADD soon LT`: a crawl is looked at no later than its first site is due. Nothing of a paused or ended one is.
local function flush_soon()
  local out = {}
  for c, at in pairs(soonest) do
    local k = crawls[c]
    if not k.paused and not k.ended then append(out, fmt('%.0f', at), c) end
  end
  if #out > 0 then call('ZADD', 'soon', 'LT', unpack(out)) end
end

local function flush()
  local all = {}
  for _, k in pairs(crawls) do all[#all + 1] = k end
  for _, k in ipairs(all) do
    if k.dflight < 0 then unblock(k, 100) end
  end
  for c, k in pairs(crawls) do
    if not k.is_gone and k.dseen then
      call('HSET', 'c:' .. c, 'pages', k.pages, 'flight', k.flight, 'queued', fmt('%.0f', k.queued), 'leased', k.leased,
        'size', k.size, 'split', k.split, 'seen', fmt('%.0f', k.seen))
    elseif not k.is_gone and k.changed then
      call('HSET', 'c:' .. c, 'pages', k.pages, 'flight', k.flight, 'queued', fmt('%.0f', k.queued), 'leased', k.leased)
    end
  end
  flush_soon()
  for _, s in pairs(changed) do write(s) end
  for name, by in pairs(delta) do
    if by ~= 0 then call('HINCRBY', 'n', name, by) end
  end
end

-- The reply of every script: the time, the number of this operation, whether rejections wait, how often data was lost, the
-- events of sites, then the script's own values.
local function reply(...)
  flush()
  call('HSET', 'n', unpack(tail))
  return { fmt('%.0f', now), tail[2], call('EXISTS', 'rejected', 'rejects'), losses, happened, ... }
end
