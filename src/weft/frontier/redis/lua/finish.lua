-- Ends leases: for good (p page, o other), or queued again (y after a wait, l at once).
--
-- ARGV: slot, batch, (item stamp end wait)*. With a batch the item is prepared for that batch of the slot: its lease does
-- not expire, `acknowledge` ends it or `recover` queues it again. Reply: 1 or 0 for each, whether the lease was valid.
local slot, batch = ARGV[3], ARGV[4]
local valid = {}
local prep = 'prep:' .. slot .. ':' .. batch
local stored, over, prepared = {}, {}, {}

-- The probe with which an origin was given up is rejected with what was queued there.
local function reject_last(s, k, item)
  leased(k, -1)
  if item[4] == 'r' then
    reject_robots(s, k, item, 'breaker')
    return
  end
  if item[4] == 'p' then
    pages_out(s, k, -1)
    local is = k.depths and item[8] ~= '' and known(k.c, item[8])
    if is and is.n == item[1] then
      know(k.c, item[8], is.n, is.depth, 'q')
      item[2] = math.min(item[2], is.depth)
    end
  end
  call('RPUSH', 'rejected', pack({ k.c, breaker_reason(s, origin_of(item[7])), s.site, item }))
  happens('breaker', authority(s.site, origin_of(item[7])), 1)
end

local function again(rec, how, wait)
  if rec[8] ~= '' or (rec[7] ~= '' and how == 'l') then
    returned(rec)
    return
  end
  local s = load(rec[3])
  if rec[5] == 0 then s.active = s.active - 1 end
  local retried = how == 'y'
  if retried and rec[9] then
    reject_last(s, crawl(rec[4]), rec[6])
    save(s)
    schedule(s)
    return
  end
  if retried then rec[6][5] = rec[6][5] + 1 end
  -- A site may name any time in Retry-After; nothing waits longer than the settings allow.
  wait = math.min(wait, crawl(rec[4]).D.longest + LONGEST)
  give_back(s, rec[4], rec[6], retried and now + wait or 0, not retried)
  save(s)
  schedule(s)
end

local function done(rec, page)
  local item, k = rec[6], crawl(rec[4])
  local is_page = item[4] == 'p'
  if is_page then mark(k, item, 'e') end
  if rec[8] == '' then
    local s = load(rec[3])
    leased(k, -1)
    if rec[5] == 0 then s.active = s.active - 1 end
    if is_page then pages_out(s, k, -1) end
    if is_page and page then
      local l = lane(s, k.c)
      k.pages, l.p = k.pages + 1, l.p + 1
      stored[k.c] = (stored[k.c] or 0) + 1
    end
    if item[4] == 'r' and item[6] == '' then
      -- Its content follows by robots.lua; if the fetcher dies before that, it is fetched again after this time.
      local field = 'R' .. origin_of(item[7])
      if call('HEXISTS', 's:' .. rec[3], field) == 1 then
        call('HSET', 's:' .. rec[3], field, fmt('%.0f', now + 10 * D.lease))
      end
    end
    save(s)
    if rec[5] == 0 or k.cap or item[4] == 'r' then schedule(s) end
  end
  if item[1] < 0 then return end
  append(over, fmt('%.0f', item[1]))
  if batch == '0' then
    count('finished', 1)
  else
    append(prepared, fmt('%.0f', item[1]), pack({ rec[3], rec[4], page and 1 or 0, item, rec[8], rec[1], rec[7] }))
  end
end

-- A caller that did not get the reply repeats the call, and must get the same reply.
local function was_done(n, stamp)
  local text = batch ~= '0' and call('HGET', prep, n)
  return text and unpack_(text)[6] == stamp
end

local names = {}
for i = 5, #ARGV, 4 do append(names, ARGV[i]) end
local records, dropped = fields('lease', names), {}
for i = 5, #ARGV, 4 do
  local n = ARGV[i]
  local rec = records[n] and unpack_(records[n])
  if not rec or rec[1] ~= tonumber(ARGV[i + 1]) then
    valid[#valid + 1] = was_done(n, tonumber(ARGV[i + 1])) and '1' or '0'
  else
    valid[#valid + 1] = '1'
    records[n] = false
    append(dropped, n)
    local how = ARGV[i + 2]
    if how == 'p' or how == 'o' then
      done(rec, how == 'p')
    else
      again(rec, how, tonumber(ARGV[i + 3]))
    end
  end
end
many('HDEL', 'lease', dropped)
many('ZREM', 'deadline', dropped)
for c, amount in pairs(stored) do call('HINCRBY', 'pages:' .. c, slot, amount) end
if call('EXISTS', 'deaths') == 1 then many('HDEL', 'deaths', over) end
if #prepared > 0 then
  many('HSET', prep, prepared)
  call('ZADD', 'preps:' .. slot, batch, batch)
end
return reply(table.concat(valid))
