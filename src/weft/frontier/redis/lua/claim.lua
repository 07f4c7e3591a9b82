-- Leases what is due, an origin's robots.txt first if none is in force; first ends expired leases, up to 200 at a time.
--
-- ARGV: owner, limit, pod, keep, low.
-- Reply: when to claim again (empty: nothing is scheduled), the deadline, the items that expired, the leases.
local owner, limit, pod = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local keep, low = tonumber(ARGV[6]), tonumber(ARGV[7])
local deadline = now + D.lease
local until_ = fmt('%.0f', deadline)
local leases, expired = {}, {}
local records, deadlines = {}, {}
local stamp = tonumber(call('HGET', 'n', 'stamp')) or 0
local lost = tonumber(call('HGET', 'state', 'lost')) or 0
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
  local more = call('LPOP', 'w:' .. queue, keep)
  if not more then
    call('SREM', 'long', queue)
    l.d = string.gsub('.' .. l.d .. '.', '%.' .. d .. 'w%.', '.' .. d .. '.')
    l.d = match(l.d, '^%.(.*)%.$')
    return false
  end
  call('RPUSH', 'q:' .. queue, unpack(more))
  return true
end

local function popped(entry, k, d)
  local n = struct.unpack('>I5', entry)
  if not k.depths then return { n, tonumber(d), 0, 'p', 0, '', sub(entry, 6), '' } end
  local size = string.byte(entry, 6)
  return { n, tonumber(d), 0, 'p', 0, '', sub(entry, 7 + size), sub(entry, 7, 6 + size) }
end

-- Whether a sitemap must wait: for a page after each sitemap, or while there are pages for all permits.
local function is_pages_turn(s, l, k)
  if l.q == l.n then return false end
  return l.q - l.n >= permits(k) or call('HEXISTS', 's:' .. s.site, 'M' .. l.c) == 1
end

local function pop_any(s, l, k)
  if l.n > 0 then
    for _, kind in ipairs({ 'r:', 'u:', 'm:' }) do
      local key = kind .. l.c .. ':' .. s.site
      local m = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, 1)[1]
      if m and not (kind == 'm:' and is_pages_turn(s, l, k)) then
        call('ZREM', key, m)
        l.n, l.q = l.n - 1, l.q - 1
        if kind == 'm:' then call('HSET', 's:' .. s.site, 'M' .. l.c, 1) end
        return unpack_(sub(m, 7))
      end
    end
    call('HDEL', 's:' .. s.site, 'M' .. l.c)
  end
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
    count('queued', -1)
    if has_gone and item[1] > 0 and call('SREM', 'gone', fmt('%.0f', item[1])) == 1 then
      count('finished', 1)
      mark(k, item, 'e')
    elseif not k.depths or item[4] ~= 'p' or item[8] == '' then
      return item
    else
      local is = known(l.c, item[8])
      if not is or is.n ~= item[1] or not (is.state ~= 'q' or is.depth < item[2]) then return item end
    end
  end
end

local function later(s, at)
  if at and (not s.later or at < s.later) then s.later = at end
end

-- The next item, the crawls taking turns.
local function take(s)
  for _ = 1, #s.lanes do
    local l = s.lanes[1]
    if #s.lanes > 1 then
      table.remove(s.lanes, 1)
      s.lanes[#s.lanes + 1] = l
    end
    local k = crawl(l.c)
    if l.q == 0 then
      -- nothing of this crawl
    elseif permits(k) <= 0 then
      call('ZADD', 'blocked:' .. l.c, 'NX', now, s.site)
    elseif k.cap and l.p + l.f >= k.cap then
      -- its budget is used up
    else
      local item = pop(s, l, k)
      if item then
        if item[4] == 'r' then return l, k, item end
        local origin = origin_of(item[7])
        local r = call('HMGET', 's:' .. s.site, 'r' .. origin, 'R' .. origin)
        local expires, version = 0, '0'
        if r[1] then
          expires, version = match(r[1], '(%d+):(%d+)')
        end
        if tonumber(expires) > now then return l, k, item, version end
        push_urgent(s, l, item, 0, true)
        local pending = r[2] and (r[2] == '-' and 9e15 or tonumber(r[2])) or 0
        if pending > now then
          if pending < 9e15 then later(s, pending) end
        else
          call('HSET', 's:' .. s.site, 'R' .. origin, '-')
          local parent = string.char(8) .. struct.pack('>I2', pod) .. struct.pack('>I6', item[1])
          local n = -call('HINCRBY', 'n', 'transient', 1)
          return l, k, { n, item[2], 0, 'r', 0, '', origin .. parent .. '/robots.txt', '' }, '0'
        end
      end
      if l.n > 0 then later(s, urgent_first(l, s.site, fmt('(%.0f', now), '+inf')) end
    end
  end
end

local function claim_at(site)
  local s = load(site)
  s.later = nil
  local waits = s.due
  if lost > 0 then waits = math.max(waits, lost + math.max(delay_of(s), SETTLE)) end
  if waits > now then
    call('ZADD', 'due', fmt('%.0f', waits), site)
    return
  end
  if s.active >= places(s) then
    call('ZREM', 'due', site)
    if s.address then call('SADD', 'P:' .. s.address, site) end
    return
  end
  if s.probes >= D.probes then reject_site(s, 'breaker') end
  local l, k, item, version = take(s)
  if not l then
    save(s)
    if s.later then
      call('ZADD', 'due', fmt('%.0f', math.max(s.due, s.later)), site)
    else
      call('ZREM', 'due', site)
    end
    if s.address then wake(s) end
    return
  end
  local delay, room = delay_of(s), places(s)
  started(s)
  if item[4] == 'p' then
    flight(k, 1)
    if k.cap then l.f = l.f + 1 end
    mark(k, item, 'l')
  end
  stamp = stamp + 1
  local n = fmt('%.0f', item[1])
  append(records, n, pack({ stamp, owner, site, l.c, 0, item, '', '' }))
  append(deadlines, until_, n)
  save(s)
  if s.address then
    schedule(s)
  elseif s.active < places(s) then
    enter(s)
  else
    call('ZREM', 'due', site)
  end
  leases[#leases + 1] = { n, stamp, l.c, site, item[2], item[3], item[4], item[5], item[6], item[7], delay, room,
    version or '0', l.k }
end

local tries, settling = 0, is_settling()
while not settling and #leases < limit and tries < limit + 1000 do
  local sites = call('ZRANGEBYSCORE', 'due', '-inf', now, 'LIMIT', 0, math.min(limit - #leases, 500))
  if #sites == 0 then break end
  for _, site in ipairs(sites) do
    tries = tries + 1
    claim_at(site)
  end
end
many('HSET', 'lease', records)
many('ZADD', 'deadline', deadlines)
if stamp > 0 then call('HSET', 'n', 'stamp', fmt('%.0f', stamp)) end
for _, c in ipairs(call('HVALS', 'crawls')) do unblock(crawl(c), 200) end
local first = call('ZRANGE', 'due', 0, 0, 'WITHSCORES')
local due = first[2] and tonumber(first[2])
if due and settling then due = math.max(due, now + 100000) end
return reply(due and fmt('%.0f', due) or '', until_, expired, leases)
