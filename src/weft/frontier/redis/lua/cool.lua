-- Transfers have ended: their places are free, and their sites are due again a delay after the end.
--
-- ARGV: (item stamp age ok slow retry_after took reference)*; ok: 1, the failure (0: unnamed) or empty; slow: 1 a limit of the site, 2 a fault of
-- its own, 0 neither; retry_after: microseconds or empty; took: microseconds, "-" where there was no answer, or empty: nobody
-- looked. With a reference (to the page in the spool) the item goes to the parse queue, and has no deadline there.
-- Reply: 1 or 0 for each, whether the lease was valid. A lease that has cooled already is left as it is.
local valid = {}

local MOST_BREAKERS = 200 -- of a site

-- The breaker of an origin, made if there is none: of a domain with very many hosts that fail one that is closed, or any,
-- makes room.
local function breaker_of(s, code)
  s.breakers = s.breakers or {}
  local b = s.breakers[code]
  if b then return b end
  local amount, spare = 0, nil
  for other, one in pairs(s.breakers) do
    amount = amount + 1
    if not spare or one[1] == 0 then spare = other end
  end
  if amount >= MOST_BREAKERS then s.breakers[spare] = nil end
  s.breakers[code] = { 0, 0, '', '', 0, '' }
  return s.breakers[code]
end

-- Counts a success or a failure; the rules are those of `Breaker` and `PolitenessClock.answered`. Returns whether a probe has
-- failed.
local function answered(s, d, n, code, ok, at)
  if ok == '1' then
    local b = s.breakers and s.breakers[code]
    if b then
      if b[1] > 0 then happens('closed', authority(s.site, code), b[2]) end
      s.breakers[code], s.has_new_breakers = nil, true
    end
    if s.x > 0 then ease(s, d) end
    return false
  end
  local b = breaker_of(s, code)
  b[6] = ok ~= '0' and ok or ''
  local is_probe = b[1] > 0
  if is_probe then
    if b[4] ~= n then return false end -- it was in flight when the breaker opened
    b[2], b[4] = b[2] + 1, ''
    happens('probed', authority(s.site, code), b[2])
  else
    if not find(',' .. b[3], ',' .. n .. ',', 1, true) then b[3] = b[3] .. n .. ',' end
    local _, amount = string.gsub(b[3], ',', '')
    if amount >= d.failures then happens('opened', authority(s.site, code), d.reset) end
    is_probe = amount >= d.failures
  end
  if is_probe then b[1], b[3] = at + d.reset, '' end
  s.has_new_breakers = true
  return b[2] > 0
end

-- What is queued for an origin is rejected; `b[5]`: of long queues, what was queued until now.
local function give_up(s, code)
  s.breakers[code][5] = tonumber(head[4]) or 0
  for _, l in ipairs(s.lanes) do
    reject_origin(s, l, code)
  end
end

-- How often a lag has doubled since it was a second: as its log lines have it.
local function doublings(lag)
  local times, seconds = 0, math.floor(lag / 1000000)
  while seconds > 0 do
    times, seconds = times + 1, math.floor(seconds / 2)
  end
  return times
end

-- Returns whether the site's delay has become shorter, and whether its origin was given up.
local function end_request(s, d, n, code, at, ok, slow, retry_after, time)
  local extra, lag = s.x, s.lag
  s.active = s.active - 1
  ended(s, at)
  if time ~= '' then took(s, d, time) end
  if slow > 0 then
    slow_down(s, d, at, slow, retry_after)
    if retry_after > d.longest then reject_site(s, 'retry-after') end
  end
  local has_failed_probe = ok ~= '' and answered(s, d, n, code, ok, at)
  local slower = s.lag == lag and 0 or doublings(s.lag) - doublings(lag)
  if s.x > extra or slower > 0 then
    happens('slowed', s.site, delay_of(s, d))
  elseif s.x < extra or slower < 0 then
    happens('eased', s.site, delay_of(s, d))
  end
  local gives_up = has_failed_probe and s.breakers[code][2] >= d.probes
  if gives_up then give_up(s, code) end
  return s.x < extra or s.lag < lag, gives_up
end

local names = {}
for i = 3, #ARGV, 8 do append(names, ARGV[i]) end
local records = fields('lease', names)
local kept, fetched, parse = {}, {}, {}

for i = 3, #ARGV, 8 do
  local n, reference = ARGV[i], ARGV[i + 7]
  local rec = records[n] and unpack_(records[n])
  if not rec or rec[1] ~= tonumber(ARGV[i + 1]) then
    valid[#valid + 1] = '0'
  else
    valid[#valid + 1] = '1'
    if rec[5] == 0 then
      local s = load(rec[3])
      rec[5] = 1
      local is_eased, gives_up = end_request(s, crawl(rec[4]).D, n, origin_of(rec[6][7]), now - tonumber(ARGV[i + 2]), ARGV[i + 3],
        tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]) or 0, ARGV[i + 6])
      if gives_up then rec[9] = 1 end
      if s.address == nil and shown(s) ~= s.line then move(s, shown(s)) end
      save_clock(s)
      schedule(s, is_eased or #happened > 0) -- an eased site is due earlier for all
    end
    if reference ~= '' then
      rec[7] = reference
      records[n] = false
      append(fetched, n, pack(rec))
      append(parse, n)
    else
      records[n] = pack(rec)
      append(kept, n, records[n])
    end
  end
end
many('HSET', 'lease', kept)
many('HDEL', 'lease', parse)
many('ZREM', 'deadline', parse)
many('HSET', 'fetched', fetched)
many('RPUSH', 'parse', parse)
return reply(table.concat(valid))
