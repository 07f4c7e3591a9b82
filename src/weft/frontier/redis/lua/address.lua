-- Politeness by address: the places of addresses, for the processes of all pods, in the pod that md5(address) names.
--
--   a:ADDRESS   hash   a requests in flight, u not before, b and e when the last one began and ended; C x g s as of a site's
--                      clock: Crawl-delay, extra delay, successes since, whether it has one place alone (2: for a fault
--                      of its own); p how long it takes to answer, G the delay while it answers later than usual; d the
--                      longest delay of who has asked; l end of a Retry-After above the maximum; w the pods that wait
--                      (POD:WHEN;)*. Expires when it has long been idle
--   held        zset   "ADDRESS OWNER NUMBER" -> when the place expires if its owner has not given it back
-- ARGV: "take", owner, pod, (address number crawl_delay delay places)*; delay and places are the asking crawl's
--       "end", owner, (address number age ok slow retry_after took crawl_delay delay)*; age "-": nothing was sent;
--       slow as cool.lua has it
--       "release", owner, slot and "#": all that the slot's other incarnations hold, due a full delay from now
-- Reply: for each "take" "y" (it has the place), "x" (a Retry-After above the maximum), or how long to wait, in
-- microseconds; for the others nothing. "end" and "release" may be repeated.
local IN_TRANSIT = 1000000
local GRACE = 500000 -- how long a free place is kept for the pod that waits longest
local SOON = 20000 -- the shortest wait, where no time is known
local IDLE = 60000000
local LONGEST_SILENCE = 86400000000 -- for which an address is not asked, however long a Retry-After is

local function look(address)
  local v = call('HMGET', 'a:' .. address, 'a', 'u', 'e', 'C', 'x', 'g', 's', 'l', 'w', 'b', 'd', 'p', 'G')
  return { address = address, active = tonumber(v[1]) or 0, due = tonumber(v[2]) or 0, ended = tonumber(v[3]) or 0,
    C = tonumber(v[4]) or 0, x = tonumber(v[5]) or 0, good = tonumber(v[6]) or 0, single = tonumber(v[7]) or 0,
    long = tonumber(v[8]) or 0, w = v[9] or '', started = tonumber(v[10]) or 0, d = tonumber(v[11]) or 0,
    pace = v[12], lag = tonumber(v[13]) or 0 }
end

-- The asking crawl's politeness; remembers the longest delay, for which the times must be kept.
local function asker(a, delay, room)
  local d = { delay = tonumber(delay), places = tonumber(room), longest = D.longest }
  a.d = math.max(a.d, d.delay)
  return d
end

-- When the next request may go there. After a loss of data requests in flight are unknown: wait until every lease of that
-- time has expired.
local function ready(a, d)
  local at = due_for(a, d)
  if lost > 0 then at = math.max(at, lost + D.lease + delay_of(a, d)) end
  return at
end

local function keep_address(a)
  local key = 'a:' .. a.address
  call('HSET', key, 'a', a.active, 'u', fmt('%.0f', a.due), 'b', fmt('%.0f', a.started), 'e', fmt('%.0f', a.ended),
    'C', fmt('%.0f', a.C), 'd', fmt('%.0f', a.d), 'x', fmt('%.0f', a.x), 'g', a.good, 's', a.single, 'l', fmt('%.0f', a.long), 'w', a.w,
    'p', a.pace or '', 'G', fmt('%.0f', a.lag))
  call('PEXPIRE', key, math.ceil((math.max(ready(a, { delay = a.d, places = 1 }) - now, 0) + D.lease + IDLE) / 1000))
end

local function asks(a, crawl_delay)
  if crawl_delay > a.C then a.C, a.single = crawl_delay, math.max(a.single, 1) end
end

-- Takes a place back whose owner did not say when the request ended, or whether it was sent.
local function expire(member, at)
  call('ZREM', 'held', member)
  local a = look(match(member, '^%S+'))
  a.active = math.max(0, a.active - 1)
  ended(a, at)
  keep_address(a)
end

-- The pods that wait, in order of arrival; one that did not come back at its time has lost its turn.
local function waiting(a)
  local pods = {}
  for pod, at in string.gmatch(a.w, '(%d+):(%d+);') do
    if now <= tonumber(at) + GRACE then pods[#pods + 1] = { pod = pod, at = tonumber(at) } end
  end
  return pods
end

local function remember(a, pods)
  a.w = ''
  for _, one in ipairs(pods) do a.w = a.w .. one.pod .. ':' .. fmt('%.0f', one.at) .. ';' end
end

local function position(pods, pod)
  for i, one in ipairs(pods) do
    if one.pod == pod then return i end
  end
  pods[#pods + 1] = { pod = pod, at = 0 }
  return #pods
end

-- "y", "x" or how long to wait. Pods take turns: a free place is kept for the first that waits, if its time has come.
local function take(a, d, owner, pod, number)
  if a.long > now then return 'x' end
  local pods, at = waiting(a), ready(a, d)
  local free = a.active < places(a, d)
  local first = pods[1]
  if free and at <= now and (not first or first.pod == pod or first.at > now) then
    for i, one in ipairs(pods) do
      if one.pod == pod then
        table.remove(pods, i)
        break
      end
    end
    remember(a, pods)
    a.active, a.started = a.active + 1, now
    call('ZADD', 'held', fmt('%.0f', now + D.lease), a.address .. ' ' .. owner .. ' ' .. number)
    return 'y'
  end
  local place = position(pods, pod)
  -- A request in flight ends later than now.
  at = math.max(at, free and now or now + delay_of(a, d)) + (place - 1) * delay_of(a, d)
  if at <= now then at = now + SOON end
  pods[place].at = at
  remember(a, pods)
  return fmt('%.0f', at - now)
end

local function finish(a, d, age, ok, slow, retry_after, time)
  a.active = math.max(0, a.active - 1)
  if age == '-' then return end
  local at = now - tonumber(age)
  ended(a, at)
  if time ~= '' then took(a, d, time) end
  if slow > 0 then
    slow_down(a, d, at, slow, retry_after)
    if retry_after > D.longest then a.long = at + math.min(retry_after, LONGEST_SILENCE) end
  elseif ok and a.x > 0 then
    ease(a, d)
  end
end

local what, owner = ARGV[3], ARGV[4]
local answers = {}
if what == 'take' then
  for _, member in ipairs(call('ZRANGEBYSCORE', 'held', '-inf', now, 'LIMIT', 0, 200)) do expire(member, now) end
  for i = 6, #ARGV, 5 do
    local a = look(ARGV[i])
    asks(a, tonumber(ARGV[i + 2]))
    answers[#answers + 1] = take(a, asker(a, ARGV[i + 3], ARGV[i + 4]), owner, ARGV[5], ARGV[i + 1])
    keep_address(a)
  end
elseif what == 'end' then
  for i = 5, #ARGV, 9 do
    if call('ZREM', 'held', ARGV[i] .. ' ' .. owner .. ' ' .. ARGV[i + 1]) == 1 then
      local a = look(ARGV[i])
      asks(a, tonumber(ARGV[i + 7]))
      finish(a, asker(a, ARGV[i + 8], 1), ARGV[i + 2], ARGV[i + 3] == '1', tonumber(ARGV[i + 4]),
        tonumber(ARGV[i + 5]) or 0, ARGV[i + 6])
      keep_address(a)
    end
  end
else
  for _, member in ipairs(call('ZRANGE', 'held', 0, -1)) do
    local holder = match(member, '^%S+ (%S+)')
    if holder ~= owner and sub(holder, 1, #ARGV[5]) == ARGV[5] then
      -- The last request may still be in transit, or in the site's receive buffer.
      local a = look(match(member, '^%S+'))
      expire(member, now + (math.max(a.d, a.C, a.x) > 0 and IN_TRANSIT or 0))
    end
  end
end
return reply(answers)
