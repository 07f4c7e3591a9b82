-- Queues new URLs and marks them seen; those over a budget or whose queue is full are not marked.
--
--   senders   hash   sender -> number of its last batch
--   nearer    list   item, depth, site, rest of pages to expand again, from callers that do not have them ("afar"); read
--                    by the pod's own node
-- ARGV: crawl, mode, sender, number, cap, keep, hard, a note (field and value of the hash `meta`, or empty), the sender's
-- batch that must have arrived before (0: none), then groups:
--   p site depth count (fingerprint rest)*           pages in the order found
--   u site depth purpose hops about fingerprint rest  a redirect's target, a sitemap, a robots.txt's next hop
-- Modes: empty; "again": queue also what is seen; "had": mark stored pages seen and ended, `rest` is their item's number;
-- "afar": the caller runs on another node than the one that has the pod's pages.
-- Reply: a letter for each (n new, d seen, h had, b over budget, f full, r a robots.txt), pairs of index and item to expand
-- again, 0 (1: the batch was delivered before, 2: one before it is missing, 3: the pod recovers from a loss, 4: there is no
-- such crawl), the last item's number. A repeated batch changes nothing; one with a full queue will be repeated.
local c, mode, sender, number = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local cap, at_once, hard = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local k = crawl(c)
local letters, expand = {}, {}
local next_item = tonumber(head[4]) or 0
local first_item = next_item
local AVERAGE = 200

local function hash(fp)
  return math.abs(tonumber(sub(fp, -12)))
end

local function bucket(fp)
  local h = hash(fp)
  local b = h % k.size
  if b < k.split then b = h % (k.size * 2) end
  return 'e:' .. c .. ':' .. b
end

local function split_one()
  local from = k.split
  local moved = {}
  local key = 'e:' .. c .. ':' .. from
  for _, fp in ipairs(call('SMEMBERS', key)) do
    if hash(fp) % (k.size * 2) ~= from then moved[#moved + 1] = fp end
  end
  if #moved > 0 then
    call('SREM', key, unpack(moved))
    call('SADD', 'e:' .. c .. ':' .. (from + k.size), unpack(moved))
  end
  k.split = from + 1
  if k.split == k.size then k.size, k.split = k.size * 2, 0 end
end

-- A Bloom filter's bits, in strings of a megabyte; the fingerprint is two numbers then.
local function bloom_bits(fp)
  local bits, hashes = match(k.bloom, '(%d+):(%d+)')
  bits, hashes = tonumber(bits), tonumber(hashes)
  local a, b = match(fp, '(%d+):(%d+)')
  local places = {}
  for i = 0, tonumber(hashes) - 1 do places[i + 1] = (tonumber(a) + i * tonumber(b)) % bits end
  return places
end

local function bloom_has(fp)
  for _, bit in ipairs(bloom_bits(fp)) do
    if call('GETBIT', 'b:' .. c .. ':' .. math.floor(bit / 8388608), bit % 8388608) == 0 then return false end
  end
  return true
end

local function is_seen(fp)
  if k.bloom == 'server' then return call('BF.EXISTS', 'b:' .. c, fp) == 1 end
  if k.bloom ~= '' then return bloom_has(fp) end
  return call('SISMEMBER', bucket(fp), fp) == 1
end

local function see(fp)
  local new = false
  if k.bloom == 'server' then
    new = call('BF.ADD', 'b:' .. c, fp) == 1
  elseif k.bloom ~= '' then
    for _, bit in ipairs(bloom_bits(fp)) do
      if call('SETBIT', 'b:' .. c .. ':' .. math.floor(bit / 8388608), bit % 8388608, 1) == 0 then new = true end
    end
  else
    new = call('SADD', bucket(fp), fp) == 1
  end
  if new then
    k.seen, k.dseen = k.seen + 1, true
    if k.bloom == '' then
      while k.seen > (k.size + k.split) * AVERAGE do split_one() end
    end
  end
  return new
end

local function add_depth(l, d)
  local tokens = {}
  for t in string.gmatch(l.d, '[%dw]+') do
    if match(t, '%d+') == d then return find(t, 'w', 1, true) end
    tokens[#tokens + 1] = t
  end
  tokens[#tokens + 1] = d
  table.sort(tokens, function(a, b) return tonumber(match(a, '%d+')) < tonumber(match(b, '%d+')) end)
  l.d = table.concat(tokens, '.')
  return false
end

local function with_tail(l, d)
  local tokens = {}
  for t in string.gmatch(l.d, '[%dw]+') do
    tokens[#tokens + 1] = match(t, '%d+') == d and d .. 'w' or t
  end
  l.d = table.concat(tokens, '.')
end

-- Splits a queue: its first `at_once` entries stay as the head, further ones go to the tail.
local function begin_tail(l, d, queue)
  call('RENAME', 'q:' .. queue, 'w:' .. queue)
  call('RPUSH', 'q:' .. queue, unpack(call('LPOP', 'w:' .. queue, at_once)))
  with_tail(l, d)
end

local function enqueue(s, l, d, entries)
  if #entries == 0 then return end
  local queue = c .. ':' .. d .. ':' .. s.site
  local tailed = add_depth(l, d)
  local key = (tailed and 'w:' or 'q:') .. queue
  local length = 0
  for at = 1, #entries, 1000 do
    length = call('RPUSH', key, unpack(entries, at, math.min(at + 999, #entries)))
  end
  if l.q == l.n then l.is_out = true end -- it may run earlier than what waits
  l.q = l.q + #entries
  queued(k, #entries)
  if not tailed and length > cap then
    begin_tail(l, d, queue)
    length = length - at_once
    tailed = true
  end
  if tailed and length > cap then call('SADD', 'long', queue) end
end

local function room(s, l, d)
  if not find('.' .. l.d .. '.', '.' .. d .. 'w.', 1, true) then return 1e9 end
  return hard - call('LLEN', 'w:' .. c .. ':' .. d .. ':' .. s.site)
end

local function entry(fp, rest)
  next_item = next_item + 1
  if k.depths then return struct.pack('>I5', next_item) .. string.char(#fp) .. fp .. rest end
  return struct.pack('>I5', next_item) .. rest
end

-- A seen URL found at a smaller depth: moved up if it is queued, as a page or as the redirect's target that it is now
-- (`urgent`: the item); returned for expansion if it was fetched.
local function move_up(s, l, d, fp, rest, index, urgent)
  local is = known(c, fp)
  if not is or is.depth <= tonumber(d) then return end
  know(c, fp, is.n, d, is.state)
  if is.state == 'e' and mode == 'afar' then
    call('RPUSH', 'nearer', pack({ fmt('%.0f', is.n), tonumber(d), s.site, rest }))
  elseif is.state == 'e' then
    expand[#expand + 1] = index
    expand[#expand + 1] = fmt('%.0f', is.n)
  elseif is.state == 'q' and urgent then
    urgent[1] = is.n
    push_urgent(s, l, urgent, 0, false)
  elseif is.state == 'q' then
    enqueue(s, l, d, { struct.pack('>I5', is.n) .. string.char(#fp) .. fp .. rest })
  end
end

local function restore_stored(fp, rest, d)
  if see(fp) and k.depths then know(c, fp, tonumber(rest), d, 'e') end
  return 'h'
end

local function verdict(s, l, fp, left)
  if mode == 'again' then
    see(fp)
    return 'n'
  end
  if k.cap and l.q + l.p + left.taken >= 20 * k.cap + 1000 then
    return is_seen(fp) and 'd' or 'b'
  end
  if left.room <= 0 then return is_seen(fp) and 'd' or 'f' end
  return see(fp) and 'n' or 'd'
end

-- A site has at most `k.maps` sitemaps.
local function sitemap_verdict(s, l, fp)
  local field = 'm' .. c
  if k.maps and (tonumber(call('HGET', 's:' .. s.site, field)) or 0) >= k.maps then
    return is_seen(fp) and 'd' or 'b'
  end
  local letter = verdict(s, l, fp, { room = 1, taken = 0 })
  if letter == 'n' and k.maps then call('HINCRBY', 's:' .. s.site, field, 1) end
  return letter
end

local refused = 0
if sender ~= '' then
  local last = tonumber(call('HGET', 'senders', sender)) or 0
  if is_settling() then
    refused = 3
  elseif number <= last then
    refused = 1
  elseif last < tonumber(ARGV[12]) then
    refused = 2
  end
end

if refused == 0 and k.is_gone and #ARGV > 12 then refused = 4 end

if ARGV[10] ~= '' and refused == 0 then call('HSET', 'meta', ARGV[10], ARGV[11]) end
local at, index = 13, 0
while at <= #ARGV and refused == 0 do
  local kind, site, d = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local s = load(site)
  local l = lane(s, c)
  -- What is urgent may have to wait; so may all that is behind a breaker, and this need not.
  local idle = l.q == l.n or s.breakers ~= nil
  if s.breakers then l.is_out = true end
  if l.q == 0 and #s.lanes > 1 then l.w = now end -- before, it did not wait
  if kind == 'p' then
    local amount = tonumber(ARGV[at + 3])
    at = at + 4
    local left = { room = room(s, l, d), taken = 0 }
    local entries = {}
    for i = 0, amount - 1 do
      local fp, rest = ARGV[at + 2 * i], ARGV[at + 2 * i + 1]
      local letter = mode == 'had' and restore_stored(fp, rest, d) or verdict(s, l, fp, left)
      if letter == 'n' then
        entries[#entries + 1] = entry(fp, rest)
        left.taken, left.room = left.taken + 1, left.room - 1
        if k.depths then know(c, fp, next_item, d, 'q') end
      elseif letter == 'd' and k.depths then
        move_up(s, l, d, fp, rest, index)
      end
      letters[#letters + 1] = letter
      index = index + 1
    end
    enqueue(s, l, d, entries)
    at = at + 2 * amount
  else
    local purpose, hops, about, fp, rest = ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
    local letter, item = 'n', { 0, tonumber(d), hops, purpose, 0, about, rest, fp }
    if purpose == 's' then
      letter = sitemap_verdict(s, l, fp)
    elseif purpose ~= 'r' then
      letter = verdict(s, l, fp, { room = 1, taken = 0 })
    end
    if letter == 'n' then
      if purpose == 'r' then
        item[1] = -call('HINCRBY', 'n', 'transient', 1)
      else
        next_item = next_item + 1
        item[1] = next_item
      end
      if k.depths and purpose == 'p' then know(c, fp, item[1], d, 'q') end
      push_urgent(s, l, item, 0, false)
      idle = true
    elseif letter == 'd' and k.depths and purpose == 'p' then
      move_up(s, l, d, fp, rest, index, item)
      idle = true
    end
    letters[#letters + 1] = purpose == 'r' and 'r' or letter
    index = index + 1
    at = at + 8
  end
  save(s)
  if idle then schedule(s) end
end
if next_item > first_item then
  append(tail, 'item', fmt('%.0f', next_item))
  count('admitted', next_item - first_item)
end
local text = table.concat(letters)
if sender ~= '' and refused == 0 and not find(text, 'f', 1, true) then
  call('HSET', 'senders', sender, fmt('%.0f', number))
  count('received', #letters)
end
return reply(text, expand, refused, next_item)
