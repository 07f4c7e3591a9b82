-- What all scripts of the frontier share, with sites.lua and items.lua; prepended to each of them.
--
-- Times are whole microseconds of the pod's clock; items are numbered within the pod (a number below zero is transient).
-- ARGV[1]: the time, for tests that move the clock; empty: the server's. ARGV[2]: the politeness section, and behind an @ the
-- id of the database's claim that the caller works on (pod_info.py).
--
--   n                 hash   counters: item, transient, seq, stamp, ops, epoch, queued, admitted, finished, received,
--                            sites, crawl; last, offset: keep the time from running backwards; turn: how far the crawl
--                            is whose turn was last; lost: when its data was found incomplete, losses: how often;
--                            id: of the claim
--   state             hash   run (of the server)
--   c:CRAWL           hash   name, seed, limits, section (its politeness), weight, pages, flight, queued, leased, paused,
--                            given; moving: its sites are yet to be scheduled anew; size, split, seen of its seen set
--   crawls            hash   name -> number
--   soon, ring        zsets  crawl -> a time before which nothing of it is due; those with something due, by stride
--   stride            hash   crawl -> how far it has been served, by its weight
--   aside:CRAWL       hash   item -> record, excluded by an edit
--   e:CRAWL:BUCKET    set    fingerprints, small integer sets, split by linear hashing
--   b:CRAWL:PIECE     string the pieces of a Bloom filter, where there is one instead
--   k:CRAWL:BUCKET    hash   fingerprint -> item:depth:state, only with a max_depth
--   due: slow: unknown:      CRAWL: every site where something of it is queued -> when it may be claimed from, or earlier
--                     zsets  (checked at the claim); infinite: something must happen first. Three lines, by what a site has
--                            shown: it answers, it is slow, it has never answered or not the last time
--   s:SITE            hash   u not before this, b and e start and end of the last request, a active, t rare state of its
--                            politeness clock, l how long it takes to answer, c the line it is in, T address of a shared
--                            clock, L lanes; o its breakers: origin's code -> { open until (0: closed), failed probes,
--                            items that failed, the probe's item, the last item that was queued when it was given up,
--                            the last failure };
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
local SETTLE, LONGEST, SLOWEST, EASE_AFTER = 10000000, 60000000, 60000000, 20
local FINE, SLOW, UNKNOWN, SLOW_FROM = 0, 1, 2, 2000000 -- what a site has shown; an answer takes this long where it is slow
local LINES = { [0] = 'due:', 'slow:', 'unknown:' }
local MIDDLE = 70368744177664 -- 2^46: urgent entries are numbered upwards from here, those for the head downwards

-- What every script needs is read at its beginning and written at its end, in one call each: calls cost more than fields.
local head = call('HMGET', 'n', 'ops', 'last', 'offset', 'item', 'stamp', 'turn', 'lost', 'losses', 'id')
-- A database that was emptied, or claimed again since: whatever is done here would be lost, or done to another crawl.
local claim = match(ARGV[2], '@(%x+)$')
if claim and claim ~= head[9] then return redis.error_reply('EMPTIED the database is not the one that was opened') end
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

-- `is_gone`: there is no such crawl.
local function crawl(c)
  local k = crawls[c]
  if not k then
    local v = call('HMGET', 'c:' .. c, 'pages', 'flight', 'paused', 'max', 'cap', 'depth', 'inflight', 'given',
      'size', 'split', 'seen', 'bloom', 'maps', 'queued', 'leased', 'section', 'weight')
    local paused, max, inflight = v[3] == '1', tonumber(v[4]), tonumber(v[7])
    k = { c = c, pages = tonumber(v[1]) or 0, flight = tonumber(v[2]) or 0, paused = paused, max = max,
      cap = tonumber(v[5]), depths = v[6] and v[6] ~= '', inflight = inflight, given = tonumber(v[8]),
      size = tonumber(v[9]) or 16, split = tonumber(v[10]) or 0, seen = tonumber(v[11]) or 0, bloom = v[12] or '',
      maps = tonumber(v[13]), queued = tonumber(v[14]) or 0, leased = tonumber(v[15]) or 0,
      D = v[16] and section(v[16]) or D, weight = tonumber(v[17]) or 1, is_gone = not v[12], dflight = 0,
      changed = false, dseen = false, limited = paused or max or inflight }
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
  count('queued', by)
end
