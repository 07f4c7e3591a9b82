-- Transfers have ended: their places are free, and their sites are due again a delay after the end.
--
-- ARGV: (item stamp age ok slow retry_after took reference)*; ok: 1, 0 or empty; slow: 1 a limit of the site, 2 a fault of
-- its own, 0 neither; retry_after: microseconds or empty; took: microseconds, "-" where there was no answer, or empty: nobody
-- looked. With a reference (to the page in the spool) the item goes to the parse queue, and has no deadline there.
-- Reply: 1 or 0 for each, whether the lease was valid. A lease that has cooled already is left as it is.
local valid = {}

local function open_breaker(s, d, at)
  s.open = at + d.reset
  s.due = math.max(s.due, s.open)
  s.failing = ''
end

local function answered(s, d, n, ok, at)
  if ok then
    if s.open > 0 then happens('closed', s.site, s.probes) end
    s.failing, s.open, s.probes = '', 0, 0
    if s.x > 0 then ease(s, d) end
    return
  end
  if s.open > 0 then
    s.probes = s.probes + 1
    happens('probed', s.site, s.probes)
    open_breaker(s, d, at)
    return
  end
  if not find(',' .. s.failing, ',' .. n .. ',', 1, true) then s.failing = s.failing .. n .. ',' end
  local _, amount = string.gsub(s.failing, ',', '')
  if amount >= d.failures then
    happens('opened', s.site, d.reset)
    open_breaker(s, d, at)
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

-- Returns whether the site's delay has become shorter.
local function end_request(s, d, n, at, ok, slow, retry_after, time)
  local extra, lag = s.x, s.lag
  s.active = s.active - 1
  ended(s, at)
  if time ~= '' then took(s, d, time) end
  if slow > 0 then
    slow_down(s, d, at, slow, retry_after)
    if retry_after > d.longest then reject_site(s, 'retry-after') end
  end
  if ok ~= '' then answered(s, d, n, ok == '1', at) end
  local slower = s.lag == lag and 0 or doublings(s.lag) - doublings(lag)
  if s.x > extra or slower > 0 then
    happens('slowed', s.site, delay_of(s, d))
  elseif s.x < extra or slower < 0 then
    happens('eased', s.site, delay_of(s, d))
  end
  if s.probes >= d.probes then reject_site(s, 'breaker') end
  return s.x < extra or s.lag < lag
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
      local is_eased = end_request(s, crawl(rec[4]).D, n, now - tonumber(ARGV[i + 2]), ARGV[i + 3],
        tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]) or 0, ARGV[i + 6])
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
