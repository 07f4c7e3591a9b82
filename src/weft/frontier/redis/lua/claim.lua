-- Leases what is due, an origin's robots.txt first if none is in force; first ends expired leases, up to 200 at a time.
-- Crawls that have something due take turns by weight; of each the line whose turn it is and that has room in the process
-- that claims, and of that the site that has been due longest.
--
-- ARGV: owner, limit, pod, keep, low, turn among the lines, room for slow sites and for unknown ones (empty: no limit).
-- Reply: when to claim again (empty: nothing is scheduled), the deadline, the items that expired, the leases.
local owner, limit, pod = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local at_once, low, line_turn = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local room = { [0] = math.huge, tonumber(ARGV[9]) or math.huge, tonumber(ARGV[10]) or math.huge }
-- Of five turns three are for sites that answer; each line that is empty, or has no room, leaves its turn to the next.
local BY_TURN = { [0] = { FINE, SLOW, UNKNOWN }, { FINE, SLOW, UNKNOWN }, { UNKNOWN, FINE, SLOW }, { FINE, SLOW, UNKNOWN },
  { SLOW, FINE, UNKNOWN } }
local deadline, now_text = now + D.lease, fmt('%.0f', now)
local until_ = fmt('%.0f', deadline)
local leases, expired = {}, {}
local records, deadlines = {}, {}
-- How long crawls wait that had something due, and no room in the process that claimed: at least, at most, and for each that
-- is due by then. Of thousands about ten thousand a second are looked at.
local AGAIN, LONGEST_AGAIN, EACH = 100000, 1000000, 100
local LONG_WAIT = 10 -- of its own delays, after which a crawl is next at a site that several want
local stamp, turn = tonumber(head[5]) or 0, tonumber(head[6]) or 0
local has_gone = call('EXISTS', 'gone') == 1

for _, n in ipairs(call('ZRANGEBYSCORE', 'deadline', '-inf', now, 'LIMIT', 0, 200)) do
  local text = call('HGET', 'lease', n)
  drop_lease(n)
  if text then
    local rec = unpack_(text)
    if rec[5] == 0 and rec[8] == '' then expired[#expired + 1] = n end
    returned(rec)
  end
end

-- Refills the head of a queue that has a tail: from the tail, or by the lead from segments on disk.
local function after_head(s, l, d)
  local queue = l.c .. ':' .. d .. ':' .. s.site
  if call('LLEN', 'q:' .. queue) >= low then return false end
  if call('EXISTS', 'g:' .. queue) == 1 then
    call('SADD', 'low', queue)
    return false
  end
  local more = call('LPOP', 'w:' .. queue, at_once)
  if not more then
    call('SREM', 'long', queue)
    l.d = string.gsub('.' .. l.d .. '.', '%.' .. d .. 'w%.', '.' .. d .. '.')
    l.d = match(l.d, '^%.(.*)%.$')
    return false
  end
  call('RPUSH', 'q:' .. queue, unpack(more))
  return true
end

local function later(s, at)
  if at and (not s.later or at < s.later) then s.later = at end
end

-- ── what is behind an open breaker ──────────────────────────────────────────────────────────────────────────────────

local PASSED_OVER, DEPTHS, LOOK_FURTHER = 50, 8, 1000000
local REJECTED_AT_ONCE = 200
local probing = {} -- the probes that this script has leased

local function has_open_breaker(s)
  for _, b in pairs(s.breakers or {}) do
    if b[1] > 0 then return true end
  end
  return false
end

-- Whether a lease is out whose request has not ended.
local function is_out(n)
  if probing[n] then return true end
  local text = call('HGET', 'lease', n)
  if not text then return false end
  local rec = unpack_(text)
  return rec[5] == 0 and rec[8] == ''
end

-- Whether nothing may be asked of an origin now: the time of its breaker has not come, or its probe is out.
local function is_held(s, code)
  local b = s.breakers[code]
  if not b or b[1] == 0 then return false end
  return b[1] > now or (b[4] ~= '' and is_out(b[4]))
end

-- The first urgent entry that may run now and is behind no open breaker.
local function urgent_unheld(s, key)
  for _, m in ipairs(call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, PASSED_OVER)) do
    if not is_held(s, origin_of(unpack_(sub(m, 7))[7])) then return m end
  end
end

-- The first page behind no open breaker. The others go to the end of their queue, a bounded number at a time, so that none
-- hides what is behind it for long; those that were queued when their origin was given up are rejected.
local function page_unheld(s, l, k)
  local depths, is_more = 0, false
  local rejected, urls = {}, {}
  local item = nil
  for d, tail in string.gmatch(l.d, '(%d+)(w?)') do
    local name = l.c .. ':' .. d .. ':' .. s.site
    local length = call('LLEN', 'q:' .. name)
    local passed, amount = 0, 0
    while not item and amount < length and passed < PASSED_OVER and #rejected < REJECTED_AT_ONCE do
      local entry = call('LPOP', 'q:' .. name)
      local one = popped(entry, k, d)
      local code = origin_of(one[7])
      local b = s.breakers[code]
      amount = amount + 1
      if b and b[1] > 0 and one[1] <= b[5] then
        rejected[#rejected + 1] = { one, code }
      elseif is_held(s, code) then
        passed = passed + 1
        call('RPUSH', (tail == 'w' and 'w:' or 'q:') .. name, entry)
      else
        item = one
      end
    end
    is_more = is_more or amount < length or tail == 'w'
    depths = depths + 1
    if tail == 'w' then after_head(s, l, d) end
    if item or depths >= DEPTHS then break end
  end
  for _, one in ipairs(rejected) do
    if reject_item(s, k, one[1], breaker_reason(s, one[2])) then urls[one[2]] = (urls[one[2]] or 0) + 1 end
  end
  for code, amount in pairs(urls) do happens('breaker', authority(s.site, code), amount) end
  if #rejected > 0 then
    l.q = l.q - #rejected
    queued(k, -#rejected)
  end
  if item then
    l.q = l.q - 1
  elseif is_more then
    later(s, #rejected > 0 and now or now + LOOK_FURTHER)
  end
  return item
end

-- Whether a sitemap must wait: for a page after each sitemap, or while there are pages for all permits.
local function is_pages_turn(s, l, k)
  if l.q == l.n then return false end
  return l.q - l.n >= permits(k) or call('HEXISTS', 's:' .. s.site, 'M' .. l.c) == 1
end

local function pop_any(s, l, k)
  local has_open = s.breakers and has_open_breaker(s)
  if l.n > 0 then
    for _, kind in ipairs({ 'r:', 'u:', 'm:' }) do
      local key = kind .. l.c .. ':' .. s.site
      local m = nil
      if has_open then
        m = urgent_unheld(s, key)
      else
        m = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, 1)[1]
      end
      if m and not (kind == 'm:' and is_pages_turn(s, l, k)) then
        call('ZREM', key, m)
        l.n, l.q = l.n - 1, l.q - 1
        if kind == 'm:' then call('HSET', 's:' .. s.site, 'M' .. l.c, 1) end
        return unpack_(sub(m, 7))
      end
    end
    call('HDEL', 's:' .. s.site, 'M' .. l.c)
  end
  if has_open then return l.q > l.n and page_unheld(s, l, k) or nil end
  while l.q > l.n do
    local d, tail = match(l.d, '^(%d+)(w?)')
    if not d then return nil end
    local entry = call('LPOP', 'q:' .. l.c .. ':' .. d .. ':' .. s.site)
    if tail == 'w' and after_head(s, l, d) and not entry then
      entry = call('LPOP', 'q:' .. l.c .. ':' .. d .. ':' .. s.site)
    end
    if entry then
      l.q = l.q - 1
      return popped(entry, k, d)
    end
    if match(l.d, '^%d+(w?)') == 'w' then return nil end -- the rest of this depth is on disk
    l.d = match(l.d, '^%d+%.?(.*)$')
  end
  return nil
end

local function pop(s, l, k)
  while true do
    local item = pop_any(s, l, k)
    if not item then return nil end
    queued(k, -1)
    if has_gone and item[1] > 0 and call('SREM', 'gone', fmt('%.0f', item[1])) == 1 then
      count('finished', 1)
      mark(k, item, 'e')
    elseif not is_void(k, item) then
      return item
    end
  end
end

-- The robots.txt that an item has to wait for, if it is to be asked for now. `wait`: what the site's RORIGIN says.
local function robots_for(s, l, item, origin, wait)
  local other = wait and match(wait, '^%-(%d+)$')
  local robots = nil
  if other and other ~= l.c then
    -- Another crawl asked, and failed: taken over when its time has come, so that one that is paused keeps
    -- nobody waiting.
    local key = 'r:' .. other .. ':' .. s.site
    local all = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local failed, at = unpack_(sub(all[i], 7)), tonumber(all[i + 1])
      if failed[6] == '' and origin_of(failed[7]) == origin then
        if at > now then return later(s, at) end
        call('ZREM', key, all[i])
        local from = lane(s, other)
        from.q, from.n = from.q - 1, from.n - 1
        queued(crawl(other), -1)
        robots = failed
        break
      end
    end
    if not robots then return nil end -- it is under way
  elseif wait and sub(wait, 1, 1) == '-' then
    return nil
  elseif wait and tonumber(wait) > now then
    return later(s, tonumber(wait))
  end
  call('HSET', 's:' .. s.site, 'R' .. origin, '-' .. l.c)
  if robots then return robots end
  local parent = string.char(8) .. struct.pack('>I2', pod) .. struct.pack('>I6', item[1])
  local n = -call('HINCRBY', 'n', 'transient', 1)
  return { n, item[2], 0, 'r', 0, '', origin .. parent .. '/robots.txt', '' }
end

-- A lane's next item.
local function take(s, l, k)
  if l.q == 0 then return end
  local is_full = permits(k) <= 0
  -- A robots.txt takes no page's permit, and another pod may wait for it with the last one.
  if is_full and (k.paused or l.n == 0 or call('ZCOUNT', 'r:' .. l.c .. ':' .. s.site, '-inf', now) == 0) then
    call('ZADD', 'blocked:' .. l.c, 'NX', now, s.site)
    return
  end
  if k.cap and l.p + l.f >= k.cap then return end
  local item = pop(s, l, k)
  if item then
    if item[4] == 'r' then return item end
    if is_full then -- the robots.txt is behind an open breaker
      push_urgent(s, l, item, 0, true)
      call('ZADD', 'blocked:' .. l.c, 'NX', now, s.site)
      return
    end
    local origin = origin_of(item[7])
    local r = call('HMGET', 's:' .. s.site, 'r' .. origin, 'R' .. origin)
    local expires, version = 0, '0'
    if r[1] then
      expires, version = match(r[1], '(%d+):(%d+)')
    end
    if tonumber(expires) > now then return item, version end
    push_urgent(s, l, item, 0, true)
    local robots = robots_for(s, l, item, origin, r[2])
    if robots then return robots, '0' end
  end
  if l.n > 0 then later(s, urgent_first(l, s.site, fmt('(%.0f', now), '+inf')) end
  if l.q > 0 then
    for _, b in pairs(s.breakers or {}) do
      if b[1] > now then later(s, b[1]) end
    end
  end
end

-- When a crawl may ask; after a loss of data nobody knows when the last request was.
local function due_at(s, d)
  local at = due_for(s, d)
  if lost > 0 then at = math.max(at, lost + math.max(delay_of(s, d), SETTLE)) end
  return at
end

-- After a lease: when its crawl may claim from the site again; returns that, or nil.
local function put_lane(s, l, k)
  local at = nil
  if l.q > 0 and s.active < places(s, k.D) then at = next_time(s, l) end
  if at then at = math.max(due_for(s, k.D), at) end
  put(k, s, l, at)
  return at
end

-- Claims for a crawl from a site; returns the crawl that has got a lease, and whether the site may be due at once again.
local function claim_at(mine, site)
  local s, k = load(site), mine
  local l = lane_of(s, k.c)
  if not l then
    call('ZREM', line(k.c, s), site)
    return
  end
  if room[s.line] <= 0 then return end
  s.later = nil
  local own, at = l, due_at(s, k.D)
  if #s.lanes > 1 then
    -- One that has waited ten of its own delays is next, unless it waits for something else than the clock (a robots.txt, a
    -- permit, its budget): then its time is later than the clock's, or infinite while there is room.
    for _, other in ipairs(s.lanes) do
      if other.w < l.w and other.q > 0 then
        local ok = crawl(other.c)
        if ok.D.delay > 0 and now - other.w > LONG_WAIT * ok.D.delay and permits(ok) > 0
          and not (ok.cap and other.p + other.f >= ok.cap) and next_time(s, other) <= now then
          local when, clock = call('ZSCORE', line(ok.c, s), site), due_at(s, ok.D)
          local waits = when and when ~= 'inf' and tonumber(when) <= math.max(clock, now)
          if waits or (when == 'inf' and s.active >= places(s, ok.D)) then l, k, at = other, ok, clock end
        end
      end
    end
    if l ~= own and at > now then
      -- Its delay is longer than the others': they wait, or it never has a turn.
      put(mine, s, own, at)
      put(k, s, l, at)
      return
    end
  end
  if s.active >= places(s, k.D) then
    put(k, s, l, nil)
    if l ~= own then put(mine, s, own, nil) end
    if s.address then call('SADD', 'P:' .. s.address, site) end
    return
  end
  if at > now then
    put(k, s, l, at)
    return
  end
  local item, version = take(s, l, k)
  if not item then
    save(s)
    put(k, s, l, s.later and math.max(due_for(s, k.D), s.later))
    if s.address then wake(s) end
    return nil, l ~= own
  end
  local delay, most = delay_of(s, k.D), places(s, k.D)
  room[s.line] = room[s.line] - 1
  s.active, s.started = s.active + 1, now
  leased(k, 1)
  if #s.lanes > 1 then l.w = now end
  if item[4] == 'p' then
    pages_out(s, k, 1)
    mark(k, item, 'l')
  end
  stamp = stamp + 1
  local n = fmt('%.0f', item[1])
  local b = s.breakers and s.breakers[origin_of(item[7])]
  if b and b[1] > 0 then
    b[4], probing[n], s.has_new_breakers = n, true, true
  end
  append(records, n, pack({ stamp, owner, s.site, l.c, 0, item, '', '' }))
  append(deadlines, until_, n)
  leases[#leases + 1] = { n, stamp, l.c, s.site, item[2], item[3], item[4], item[5], item[6], item[7], delay, most,
    version or '0', l.k, s.line }
  save(s)
  if s.address then
    schedule(s)
    return k
  end
  local again = put_lane(s, l, k)
  if l ~= own then again = put_lane(s, own, mine) end
  return k, again and again <= now
end

-- ── whose turn it is ────────────────────────────────────────────────────────────────────────────────────────────────
-- The crawls of the ring that may be served now, and those whose time has come since.

local ready, by_crawl, tries = {}, {}, 0

local function join(c, stride, in_ring)
  if by_crawl[c] then return end
  local e = { c = c, stride = stride, key = stride, in_ring = in_ring, lines = {} }
  by_crawl[c] = e
  ready[#ready + 1] = e
end

flush_soon() -- what has expired
soonest = {}
local settling, is_more = is_settling(), nil
if settling then
  is_more = call('EXISTS', 'ring') == 1 -- those are due, and not in `soon`
else
  local ring = call('ZRANGE', 'ring', 0, limit, 'WITHSCORES')
  is_more = #ring > 2 * limit
  for i = 1, #ring, 2 do join(ring[i], tonumber(ring[i + 1]), true) end
  local due = call('ZRANGEBYSCORE', 'soon', '-inf', now_text, 'LIMIT', 0, math.min(limit + 100, 1000))
  -- One that comes in begins where the others are.
  if #due == 1 and #ready == 0 then
    join(due[1], turn, false)
  elseif #due > 0 then
    for i, stride in ipairs(call('HMGET', 'stride', unpack(due))) do
      join(due[i], math.max(tonumber(stride) or 0, turn), false)
    end
  end
end

-- The next site of a crawl that is due in a line. `share`: how many are read at a time.
local function next_in(e, at, share)
  local q = e.lines[at]
  if not q then
    q = { sites = {}, at = 1 }
    e.lines[at] = q
  end
  if q.at > #q.sites then
    if q.is_short then return nil end
    share = math.min(share, room[at])
    q.sites = call('ZRANGEBYSCORE', LINES[at] .. e.c, '-inf', now_text, 'LIMIT', 0, share)
    q.at, q.is_short = 1, #q.sites < share
  end
  q.at = q.at + 1
  return q.sites[q.at - 1]
end

-- Serves a crawl once; false if it has nothing due in a line that has room.
local function serve(e, share)
  local k = crawl(e.c)
  if k.paused then return false end
  for _, at in ipairs(BY_TURN[line_turn]) do
    local site = room[at] > 0 and next_in(e, at, share)
    if site then
      line_turn, tries = (line_turn + 1) % 5, tries + 1
      local served, again = claim_at(k, site)
      if again then e.lines[at].is_short = false end
      return true, served
    end
  end
  return false
end

local is_alone = #ready == 1
if is_alone then
  -- It is charged nothing, or it would pay for having been alone when another comes.
  local e = ready[1]
  while #leases < limit and tries < limit + 1000 and not e.is_idle do
    e.is_idle = not serve(e, math.min(limit - #leases, 500))
  end
elseif #ready > 1 then
  -- A heap by stride; `key` is where a crawl stands in it.
  local heap = ready
  local function before(a, b)
    return a.key < b.key or (a.key == b.key and tonumber(a.c) < tonumber(b.c))
  end

  local function down()
    local i, n = 1, #heap
    while true do
      local least = i
      for child = 2 * i, math.min(2 * i + 1, n) do
        if before(heap[child], heap[least]) then least = child end
      end
      if least == i then return end
      heap[i], heap[least] = heap[least], heap[i]
      i = least
    end
  end

  table.sort(heap, before)
  while #heap > 0 and #leases < limit and tries < limit + 1000 do
    local e = heap[1]
    if e.stride > e.key then
      e.key = e.stride
      down()
    else
      local has_tried, served = serve(e, math.min(math.ceil((limit - #leases) / #heap), 500))
      local charged = served and by_crawl[served.c]
      if charged then
        turn = math.max(turn, e.stride) -- not of one that was served in its place, which may be far ahead
        charged.stride, charged.is_charged = charged.stride + 1 / served.weight, true
      elseif not has_tried then
        e.is_idle = true
        heap[1] = heap[#heap]
        heap[#heap] = nil
        down()
      end
    end
  end
end

-- When something of a crawl may be due in a line that has room, and in any of them. What is due in one that has none is
-- for other processes, or waits for a request of this one to end.
local function firsts(c)
  local own, any = nil, nil
  for at = FINE, UNKNOWN do
    local time = call('ZRANGE', LINES[at] .. c, 0, 0, 'WITHSCORES')[2]
    time = time and time ~= 'inf' and tonumber(time)
    if time and (room[at] > 0 or time > now) and (not own or time < own) then own = time end
    if time and (not any or time < any) then any = time end
  end
  return own, any
end

-- Those with nothing due any more leave the ring; the others stay in it. Of several those that
-- this process has no room for wait a little, or they would be looked at again and again in place of others.
local stay, strides, gone, wait, came, stuck = {}, {}, {}, {}, {}, {}
local again = nil
for c, e in pairs(by_crawl) do
  soonest[c] = nil
  if e.is_charged then append(strides, c, fmt('%.17g', e.stride)) end
  if not e.is_idle then
    append(stay, fmt('%.17g', e.stride), c)
    if not e.in_ring then append(came, c) end
  else
    if e.in_ring then append(gone, c) end
    local k, own, first = crawl(c), nil, nil
    if not k.paused then
      own, first = firsts(c)
    end
    if first and first ~= own then
      stuck[c] = own or math.huge
      if not again then
        local crowd = call('ZCOUNT', 'soon', '-inf', fmt('%.0f', now + LONGEST_AGAIN))
        again = math.min(math.max(AGAIN, EACH * crowd), LONGEST_AGAIN)
      end
      append(wait, fmt('%.0f', is_alone and now or math.min(stuck[c], now + again)), c)
    elseif first then
      append(wait, fmt('%.0f', first), c)
    else
      append(came, c)
    end
  end
end
is_more = is_more or #stay > 0
many('ZADD', 'ring', stay)
many('HSET', 'stride', strides)
many('ZREM', 'ring', gone)
many('ZADD', 'soon', wait)
many('ZREM', 'soon', came)

many('HSET', 'lease', records)
many('ZADD', 'deadline', deadlines)
if #leases > 0 then append(tail, 'stamp', fmt('%.0f', stamp)) end
if turn > (tonumber(head[6]) or 0) then append(tail, 'turn', fmt('%.17g', turn)) end
-- A site that was let go on for a permit, and had a sitemap, has not used it.
local all = {}
for _, k in pairs(crawls) do all[#all + 1] = k end
for _, k in ipairs(all) do unblock(k, 200) end
flush_soon()
for c, at in pairs(soonest) do
  if stuck[c] then stuck[c] = math.min(stuck[c], at) end
end
soonest = {}

-- When something may be due next for this process: the first of `soon`, set right where that is too early. Crawls that it has
-- not looked at are asked for at once where their time has come. While it has no room in a line, the others are perhaps due
-- there alone: they have some time.
local function next_due()
  local due, looked, least = math.huge, 4, 0
  for _ in pairs(stuck) do
    looked, least = looked + 1, now + AGAIN
  end
  local function not_before(at)
    return at > now and math.max(at, least) or at
  end

  local first = call('ZRANGE', 'soon', 0, looked, 'WITHSCORES')
  for i = 1, #first, 2 do
    local c, at = first[i], tonumber(first[i + 1])
    if at >= due then return due end
    if by_crawl[c] then
      due = math.min(due, stuck[c] or at)
    else
      local time = first_of(c)
      if not time then
        call('ZREM', 'soon', c)
      else
        due = math.min(due, math.max(time, not_before(at))) -- before `at` it is given to nobody
        if time > at then call('ZADD', 'soon', fmt('%.0f', time), c) end
      end
    end
  end
  -- Those behind are due no earlier than the last one that was looked at.
  if #first > 2 * looked then due = math.min(due, not_before(tonumber(first[#first]))) end
  return due
end
local due = is_more and now or next_due()
if due == math.huge then due = nil end
if due and settling then due = math.max(due, now + 100000) end
return reply(due and fmt('%.0f', due) or '', until_, expired, leases)
