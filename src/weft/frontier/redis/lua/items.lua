-- Items, in their queues and out of them, and the end of every script. Behind sites.lua, in front of every script.

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

-- Whether an entry is one that its item has left behind: it has ended, is out, or was moved up.
local function is_void(k, item)
  if not k.depths or item[4] ~= 'p' or item[8] == '' then return false end
  local is = known(k.c, item[8])
  return is and is.n == item[1] and (is.state ~= 'q' or is.depth < item[2])
end

local function push_urgent(s, l, item, not_before, first)
  local seq = call('HINCRBY', 'n', 'seq', 1)
  local kind = item[4] == 'r' and 'r:' or item[4] == 's' and 'm:' or 'u:'
  local member = struct.pack('>I6', first and MIDDLE - seq or MIDDLE + seq) .. pack(item)
  call('ZADD', kind .. l.c .. ':' .. s.site, fmt('%.0f', not_before), member)
  l.q, l.n, l.is_out = l.q + 1, l.n + 1, true -- it may run earlier than what waits
  queued(crawl(l.c), 1)
end

-- An item that was out goes back to its queue.
local function give_back(s, c, item, not_before, first)
  local k = crawl(c)
  leased(k, -1)
  if item[4] == 'p' then pages_out(s, k, -1) end
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

-- A record of a lease: { stamp, owner, site, crawl, cooled, item, reference, reason, 1 if it was the last probe of an origin
-- that was given up }
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

-- An item as it lies in a queue of a depth.
local function popped(entry, k, d)
  local n = struct.unpack('>I5', entry)
  if not k.depths then return { n, tonumber(d), 0, 'p', 0, '', sub(entry, 6), '' } end
  local size = string.byte(entry, 6)
  return { n, tonumber(d), 0, 'p', 0, '', sub(entry, 7 + size), sub(entry, 7, 6 + size) }
end

-- Rejects a page, or a sitemap, that was taken out of its queue; true if it was no entry that its item had left behind.
local function reject_item(s, k, item, reason)
  if is_void(k, item) then return false end
  call('RPUSH', 'rejected', pack({ k.c, reason, s.site, item }))
  return true
end

-- A robots.txt is not asked for. Where a redirect has led to what is given up it cannot be had: whoever stores the rejected
-- says so, or those who wait for it would be led there again and again.
local function reject_robots(s, k, item, reason)
  if item[6] == '' then
    call('HDEL', 's:' .. s.site, 'R' .. origin_of(item[7]))
  else
    call('RPUSH', 'rejected', pack({ k.c, reason, s.site, item }))
  end
end

-- Why what is queued for an origin is rejected: its breaker, and the last failure there.
local function breaker_reason(s, code)
  local b = s.breakers and s.breakers[code]
  return b and b[6] and b[6] ~= '' and 'breaker: ' .. b[6] or 'breaker'
end

-- Rejects what a lane has of an origin whose breaker has stayed open for too long. A long queue is left to `claim`, which
-- rejects what was queued until now when it comes to it.
local REJECTED_AT_ONCE = 2000

local function reject_origin(s, l, code)
  if l.q == 0 then return end
  local where, k, urls, left, reason = l.c .. ':' .. s.site, crawl(l.c), 0, l.q, breaker_reason(s, code)
  for _, kind in ipairs({ 'r:', 'u:', 'm:' }) do
    for _, m in ipairs(call('ZRANGE', kind .. where, 0, -1)) do
      local item = unpack_(sub(m, 7))
      if origin_of(item[7]) == code then
        call('ZREM', kind .. where, m)
        left, l.n = left - 1, l.n - 1
        if item[4] == 'r' then
          reject_robots(s, k, item, 'breaker')
        elseif reject_item(s, k, item, reason) then
          urls = urls + 1
        end
      end
    end
  end
  for d, tail in string.gmatch(l.d, '(%d+)(w?)') do
    local queue = 'q:' .. l.c .. ':' .. d .. ':' .. s.site
    if tail == '' and call('LLEN', queue) <= REJECTED_AT_ONCE then
      local all, kept = call('LRANGE', queue, 0, -1), {}
      for _, entry in ipairs(all) do
        local item = popped(entry, k, d)
        if origin_of(item[7]) ~= code then
          kept[#kept + 1] = entry
        elseif reject_item(s, k, item, reason) then
          urls = urls + 1
        end
      end
      if #kept < #all then
        call('DEL', queue)
        many('RPUSH', queue, kept)
        left = left - #all + #kept
      end
    end
  end
  queued(k, left - l.q)
  if urls > 0 then happens('breaker', authority(s.site, code), urls) end
  l.q, s.has_moved = left, true
  if l.q == 0 then
    l.d = ''
    put(k, s, l, nil)
  end
end

-- Empties a lane by renaming whole queues; rejected.lua leases their items in pieces.
local function reject(s, l, reason)
  if l.q == 0 then return end
  local where, k, urls = l.c .. ':' .. s.site, crawl(l.c), l.q
  for _, m in ipairs(call('ZRANGE', 'r:' .. where, 0, -1)) do
    local item = unpack_(sub(m, 7))
    call('HDEL', 's:' .. s.site, 'R' .. origin_of(item[7]))
    urls = urls - 1
  end
  call('DEL', 'r:' .. where)
  for _, kind in ipairs({ 'u:', 'm:' }) do
    for _, m in ipairs(call('ZRANGE', kind .. where, 0, -1)) do
      local item = unpack_(sub(m, 7))
      if is_void(k, item) then
        urls = urls - 1
      else
        call('RPUSH', 'rejected', pack({ l.c, reason, s.site, item }))
      end
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
  queued(k, -l.q)
  -- Pages that have moved up are still counted where they were: their queues are opened later.
  if urls > 0 then happens(reason, s.site, urls) end
  l.q, l.n, l.d = 0, 0, ''
  s.has_moved = true
  put(k, s, l, nil)
end

local function reject_site(s, reason)
  for _, l in ipairs(s.lanes) do reject(s, l, reason) end
end

-- Lets sites that wait for a permit go on until as many are due as there are permits; `most`: how many are looked at. One that
-- is not due uses none: it is claimed from in its time, or waits again if there is no permit then. Where none of those that
-- were looked at is due, one of them counts as due, so that the next claim looks at the others.
local function unblock(k, most)
  if not k.limited then return end
  local may, is_none_due, last = permits(k), true, nil
  while may > 0 and most > 0 do
    local waiting = call('ZPOPMIN', 'blocked:' .. k.c, math.min(may, most))
    if #waiting == 0 then return end
    local before = put_due[k.c] or 0
    for i = 1, #waiting, 2 do
      last = waiting[i]
      schedule(load(last), true)
    end
    local due = (put_due[k.c] or 0) - before
    may, most, is_none_due = may - due, most - #waiting / 2, is_none_due and due == 0
  end
  if last and is_none_due then
    local s = load(last)
    put(k, s, lane(s, k.c), now)
  end
end

-- ── the end of every script ─────────────────────────────────────────────────────────────────────────────────────────

-- `ZADD soon LT`: a crawl is looked at no later than its first site is due. Nothing of a paused one is.
local function flush_soon()
  local out = {}
  for c, at in pairs(soonest) do
    local k = crawls[c]
    if not k.paused then append(out, fmt('%.0f', at), c) end
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
