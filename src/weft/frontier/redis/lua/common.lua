-- What all scripts of the frontier share; prepended to each of them.
--
-- Times are whole microseconds of the pod's clock; items are numbered within the pod (a number below zero is transient).
-- ARGV[1]: the time, for tests that move the clock; empty: the server's. ARGV[2]: the politeness section.
--
--   clock             hash   last, offset: keep the time from running backwards
--   n                 hash   counters: item, transient, seq, stamp, ops, epoch, queued, admitted, finished, sent, received, sites
--   state             hash   run (of the server), lost (when its data was found incomplete), losses (how often)
--   c:CRAWL           hash   name, seed, limits, pages, flight, paused, given; size, split, seen of its seen set
--   e:CRAWL:BUCKET    set    fingerprints, small integer sets, split by linear hashing
--   b:CRAWL:PIECE     string the pieces of a Bloom filter, where there is one instead
--   k:CRAWL:BUCKET    hash   fingerprint -> item:depth:state, only with a max_depth
--   due               zset   site -> when it may be claimed from
--   s:SITE            hash   u due, a active, t rare state of its politeness clock, T address of a shared clock, L lanes;
--                            rORIGIN expiry:version of a robots.txt, RORIGIN it is being fetched;
--                            mCRAWL sitemaps admitted, MCRAWL the last item was a sitemap
--   t:ADDRESS         hash   u, a, t of a clock that sites share;  P:ADDRESS set, the sites that wait for a place of it
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
local SETTLE, LONGEST = 10000000, 60000000
local MIDDLE = 70368744177664 -- 2^46: urgent entries are numbered upwards from here, those for the head downwards

local function clock()
  local t
  if ARGV[1] ~= '' then
    t = tonumber(ARGV[1])
  else
    local p = call('TIME')
    t = p[1] * 1000000 + p[2]
  end
  local c = call('HMGET', 'clock', 'last', 'offset')
  local last, offset = tonumber(c[1]) or 0, tonumber(c[2]) or 0
  t = t + offset
  if t < last then
    call('HSET', 'clock', 'offset', fmt('%.0f', offset + last - t))
    t = last
  else
    call('HSET', 'clock', 'last', fmt('%.0f', t))
  end
  return t
end

local now = clock()
local delta = {}

-- After a loss of data the slots' processes restart and report what their stores have. Until all have, nothing is leased and
-- no batch of another pod is admitted, or stored pages would be fetched again. After LONGEST missing slots are ignored.
local function is_settling()
  local lost = tonumber(call('HGET', 'state', 'lost'))
  return lost and now < lost + LONGEST and call('EXISTS', 'settling') == 1
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

local D = {}
do
  local delay, places, lease, failures, reset, probes, longest =
    match(ARGV[2], '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)')
  D.delay, D.places, D.lease = tonumber(delay), tonumber(places), tonumber(lease)
  D.failures, D.reset, D.probes, D.longest = tonumber(failures), tonumber(reset), tonumber(probes), tonumber(longest)
end

-- ── crawls ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local crawls = {}

local function crawl(c)
  local k = crawls[c]
  if not k then
    local v = call('HMGET', 'c:' .. c, 'pages', 'flight', 'paused', 'max', 'cap', 'depth', 'inflight', 'given',
      'size', 'split', 'seen', 'bloom', 'maps')
    k = { c = c, pages = tonumber(v[1]) or 0, flight = tonumber(v[2]) or 0, paused = v[3] == '1', max = tonumber(v[4]),
      cap = tonumber(v[5]), depths = v[6] and v[6] ~= '', inflight = tonumber(v[7]), given = tonumber(v[8]),
      size = tonumber(v[9]) or 16, split = tonumber(v[10]) or 0, seen = tonumber(v[11]) or 0, bloom = v[12] or '',
      maps = tonumber(v[13]), dpages = 0, dflight = 0 }
    k.limited = k.paused or k.max or k.inflight
    crawls[c] = k
  end
  return k
end

local function permits(k)
  if k.paused then return 0 end
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
end

local function pages(k, by)
  k.pages = k.pages + by
  k.dpages = k.dpages + by
end

-- ── sites ───────────────────────────────────────────────────────────────────────────────────────────────────────────

local function read_clock(s, v1, v2, v3)
  s.due, s.active = tonumber(v1) or 0, tonumber(v2) or 0
  s.C, s.x, s.good, s.single, s.open, s.probes, s.failing = 0, 0, 0, 0, 0, 0, ''
  s.rare = v3
  if v3 then
    local C, x, g, single, open, probes, failing = match(v3, '(%d+):(%d+):(%d+):(%d):(%d+):(%d+):(.*)')
    s.C, s.x, s.good, s.single = tonumber(C), tonumber(x), tonumber(g), tonumber(single)
    s.open, s.probes, s.failing = tonumber(open), tonumber(probes), failing
  end
end

-- The sites that this script has read, and those to write at its end. A site with a shared clock is read again each time and
-- written at once, since another site may have changed that clock meanwhile.
local sites, changed = {}, {}

local function load(site)
  if sites[site] then return sites[site] end
  local v = call('HMGET', 's:' .. site, 'u', 'a', 't', 'T', 'L')
  local s = { site = site, lanes = {}, fresh = not v[1] and not v[5], address = v[4] or nil }
  if v[4] then
    local t = call('HMGET', 't:' .. v[4], 'u', 'a', 't')
    read_clock(s, t[1], t[2], t[3])
  else
    read_clock(s, v[1], v[2], v[3])
  end
  if v[5] then
    for c, q, n, p, f, k, d in string.gmatch(v[5], '(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):([%dw.]*);') do
      s.lanes[#s.lanes + 1] = { c = c, q = tonumber(q), n = tonumber(n), p = tonumber(p), f = tonumber(f), k = k, d = d }
    end
  end
  if not s.address then sites[site] = s end
  return s
end

local function write(s)
  local lanes = ''
  for _, l in ipairs(s.lanes) do
    lanes = lanes .. l.c .. ':' .. l.q .. ':' .. l.n .. ':' .. l.p .. ':' .. l.f .. ':' .. l.k .. ':' .. l.d .. ';'
  end
  local rare = nil
  if s.C > 0 or s.x > 0 or s.single > 0 or s.open > 0 or s.probes > 0 or s.failing ~= '' then
    rare = fmt('%.0f:%.0f:%d:%d:%.0f:%d:%s', s.C, s.x, s.good, s.single, s.open, s.probes, s.failing)
  end
  local home = s.address and ('t:' .. s.address) or ('s:' .. s.site)
  if rare and rare ~= s.rare then
    call('HSET', home, 't', rare)
  elseif s.rare and not rare then
    call('HDEL', home, 't')
  end
  s.rare = rare
  if s.address then
    call('HSET', home, 'u', fmt('%.0f', s.due), 'a', s.active)
    call('HSET', 's:' .. s.site, 'L', lanes)
  else
    call('HSET', home, 'u', fmt('%.0f', s.due), 'a', s.active, 'L', lanes)
  end
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

local function save(s)
  if s.address then
    settle(s)
  else
    changed[s.site] = s
  end
end

local function lane(s, c)
  for _, l in ipairs(s.lanes) do
    if l.c == c then return l end
  end
  local l = { c = c, q = 0, n = 0, p = 0, f = 0, k = '0', d = '' }
  s.lanes[#s.lanes + 1] = l
  return l
end

local function delay_of(s)
  return math.max(D.delay, s.C, s.x)
end

local function places(s)
  if s.single == 1 or s.open > 0 then return 1 end
  return D.places
end

local function started(s)
  s.active = s.active + 1
  if places(s) > 1 then s.due = math.max(s.due, now + delay_of(s)) end
end

local function ended(s, at)
  if places(s) == 1 then s.due = math.max(s.due, at + delay_of(s)) end
end

local function urgent_first(l, site, low, high)
  local best = nil
  for _, kind in ipairs({ 'r:', 'u:', 'm:' }) do
    local v = call('ZRANGEBYSCORE', kind .. l.c .. ':' .. site, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
    if v[2] and (not best or tonumber(v[2]) < best) then best = tonumber(v[2]) end
  end
  return best
end

-- When something may run here, apart from the politeness clock.
local function next_time(s)
  local best = nil
  for _, l in ipairs(s.lanes) do
    if l.q > l.n then return 0 end
    if l.n > 0 then
      local at = urgent_first(l, s.site, '-inf', '+inf')
      if at and (not best or at < best) then best = at end
    end
  end
  return best
end

local function enter(s)
  local at = next_time(s)
  if at then
    call('ZADD', 'due', fmt('%.0f', math.max(s.due, at)), s.site)
  else
    call('ZREM', 'due', s.site)
  end
  return at
end

-- Schedules as many of the sites that wait for a shared clock as it has free places, chosen at random: of a thousand at one
-- address not all at once, and none always first.
local function wake(s)
  local room = places(s) - s.active
  while room > 0 do
    local other = call('SPOP', 'P:' .. s.address)
    if not other then return end
    local o = load(other)
    local at = enter(o)
    if at and at <= math.max(o.due, now) then room = room - 1 end
  end
end

-- Sets in `due` when a site may be claimed from; a site whose places are all in use is not in it.
local function schedule(s)
  if s.address then
    if next_time(s) then
      call('SADD', 'P:' .. s.address, s.site)
    end
    call('ZREM', 'due', s.site)
    wake(s)
  elseif s.active < places(s) then
    enter(s)
  end
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

-- The origin's code at the front of `rest`: one byte for the usual ones.
local function origin_of(rest)
  local kind = string.byte(rest, 1)
  if kind < 4 then return sub(rest, 1, 1) end
  return sub(rest, 1, 3 + string.byte(rest, 2) * 256 + string.byte(rest, 3))
end

local function push_urgent(s, l, item, not_before, first)
  local seq = call('HINCRBY', 'n', 'seq', 1)
  local kind = item[4] == 'r' and 'r:' or item[4] == 's' and 'm:' or 'u:'
  local member = struct.pack('>I6', first and MIDDLE - seq or MIDDLE + seq) .. pack(item)
  call('ZADD', kind .. l.c .. ':' .. s.site, fmt('%.0f', not_before), member)
  l.q, l.n = l.q + 1, l.n + 1
  count('queued', 1)
end

local function give_back(s, c, item, not_before, first)
  local k = crawl(c)
  local l = lane(s, c)
  if item[4] == 'p' then
    flight(k, -1)
    if k.cap then l.f = l.f - 1 end
    if k.depths and item[8] ~= '' then
      local is = known(c, item[8])
      if is and is.n == item[1] then
        know(c, item[8], is.n, is.depth, 'q')
        if is.depth < item[2] then item[2] = is.depth end
      end
    end
  end
  push_urgent(s, l, item, not_before, first)
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

local function append(list, a, b)
  list[#list + 1] = a
  if b then list[#list + 1] = b end
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
      ended(s, now + (delay_of(s) > 0 and margin or 0))
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
  count('queued', -l.q)
  happens(reason, s.site, l.q)
  l.q, l.n, l.d = 0, 0, ''
end

local function reject_site(s, reason)
  for _, l in ipairs(s.lanes) do reject(s, l, reason) end
end

local function unblock(k, most)
  if not k.limited then return end
  local may = math.min(permits(k), most)
  if may <= 0 then return end
  local waiting = call('ZPOPMIN', 'blocked:' .. k.c, may)
  for i = 1, #waiting, 2 do schedule(load(waiting[i])) end
end

-- ── the end of every script ─────────────────────────────────────────────────────────────────────────────────────────

local function flush()
  for c, k in pairs(crawls) do
    if k.dflight ~= 0 then
      call('HINCRBY', 'c:' .. c, 'flight', k.dflight)
      if k.dflight < 0 then unblock(k, 100) end
    end
    if k.dpages ~= 0 then call('HINCRBY', 'c:' .. c, 'pages', k.dpages) end
    if k.dseen then call('HSET', 'c:' .. c, 'size', k.size, 'split', k.split, 'seen', fmt('%.0f', k.seen)) end
  end
  for _, s in pairs(changed) do write(s) end
  for name, by in pairs(delta) do
    if by ~= 0 then call('HINCRBY', 'n', name, by) end
  end
end

-- The reply of every script: the time, the number of this operation, how many rejections wait, how often data was lost, the
-- events of sites, then the script's own values.
local function reply(...)
  flush()
  return { fmt('%.0f', now), call('HINCRBY', 'n', 'ops', 1), call('LLEN', 'rejected') + call('LLEN', 'rejects'),
    tonumber(call('HGET', 'state', 'losses')) or 0, happened, ... }
end
