-- Deletes a part of what is kept of a crawl that has ended for good: its sites, then what it has seen, then itself. A kill
-- between two parts loses nothing: what is left is still in `over`.
--
-- ARGV: crawl, how much at most.
-- Reply: 1 if nothing is left, the segments of its queues on disk.
local c, most = ARGV[3], tonumber(ARGV[4])
local key = 'c:' .. c
local k = crawl(c)
if k.is_gone then
  call('SREM', 'over', c)
  return reply(1, {})
end
if not k.is_over then return reply(0, {}) end

local segments = {}

-- Deletes what it has at a site. Whoever waits for a robots.txt of it can ask now.
local function delete_lane(s, l)
  local where = c .. ':' .. s.site
  for _, m in ipairs(call('ZRANGE', 'r:' .. where, 0, -1)) do
    local item = unpack_(sub(m, 7))
    if item[6] == '' then call('HDEL', 's:' .. s.site, 'R' .. origin_of(item[7])) end
  end
  local names = { 'u:' .. where, 'r:' .. where, 'm:' .. where, 'C:' .. where }
  for d in string.gmatch(l.d, '(%d+)') do
    local queue = c .. ':' .. d .. ':' .. s.site
    for _, segment in ipairs(call('LRANGE', 'g:' .. queue, 0, -1)) do append(segments, segment) end
    for _, kind in ipairs({ 'q:', 'g:', 'w:' }) do append(names, kind .. queue) end
    call('SREM', 'long', queue)
    call('SREM', 'low', queue)
  end
  call('UNLINK', unpack(names))
  l.q, l.n, l.d, l.k = 0, 0, '', '0'
end

for at = FINE, UNKNOWN do
  local some = call('ZRANGE', LINES[at] .. c, 0, most - 1)
  for _, site in ipairs(some) do
    local s = load(site)
    local l = lane_of(s, c)
    if l then delete_lane(s, l) end
    save(s)
    schedule(s, true) -- which removes the lane
  end
  many('ZREM', LINES[at] .. c, some)
  most = most - #some
  if most <= 0 then return reply(0, segments) end
end

-- The buckets of its seen set, a hundred of its known depths for one of these, the pieces of its Bloom filter.
local function delete_numbered(prefix, amount, each)
  local field = 'swept' .. prefix
  local at = tonumber(call('HGET', key, field)) or 0
  local till = math.min(amount, at + most * each)
  for from = at, till - 1, MANY do
    local names = {}
    for i = from, math.min(from + MANY, till) - 1 do append(names, prefix .. c .. ':' .. i) end
    call('UNLINK', unpack(names))
  end
  call('HSET', key, field, till)
  most = most - math.ceil((till - at) / each)
  return till == amount
end

local pieces = match(k.bloom, '^(%d+):')
if not delete_numbered('e:', k.bloom == '' and k.size + k.split or 0, 1) then return reply(0, segments) end
if not delete_numbered('k:', k.depths and 16384 or 0, 100) then return reply(0, segments) end
if not delete_numbered('b:', pieces and math.ceil(tonumber(pieces) / 8388608) or 0, 1) then return reply(0, segments) end
for _, prefix in ipairs({ 'b:', 'blocked:', 'aside:', 'held:', 'pages:', 'scope:', 'permits:', 'c:' }) do
  call('UNLINK', prefix .. c)
end
call('HDEL', 'stride', c)
call('HDEL', 'meta', 'recrawl:' .. c)
call('SREM', 'over', c)
k.is_gone = true
return reply(1, segments)
