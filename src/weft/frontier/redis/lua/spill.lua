-- The lead moves queues between memory and disk; a step is refused if the queue has changed since the lead read it.
--
-- ARGV: "out", queue, segment, amount, first entry, last entry, cap   the tail's first entries are in that segment, on disk
--       "in", queue, segment, site, entries...                        a segment's entries come back to the head
--       "rejected", name, segment, record, entries...                 a rejected queue's segment is loaded
-- Reply: 1 or 0.
local what, queue, segment = ARGV[3], ARGV[4], ARGV[5]

local function push(key, from)
  for at = from, #ARGV, 1000 do
    call('RPUSH', key, unpack(ARGV, at, math.min(at + 999, #ARGV)))
  end
end

if what == 'out' then
  local amount, key = tonumber(ARGV[6]), 'w:' .. queue
  if call('LINDEX', key, 0) ~= ARGV[7] or call('LINDEX', key, amount - 1) ~= ARGV[8] then return reply(0) end
  call('RPUSH', 'g:' .. queue, segment)
  call('LTRIM', key, amount, -1)
  if call('LLEN', key) <= tonumber(ARGV[9]) then call('SREM', 'long', queue) end
  return reply(1)
end
if what == 'in' then
  if call('LINDEX', 'g:' .. queue, 0) ~= segment then
    call('SREM', 'low', queue)
    return reply(0)
  end
  call('LPOP', 'g:' .. queue)
  push('q:' .. queue, 7)
  call('SREM', 'low', queue)
  schedule(load(ARGV[6]), true)
  return reply(1)
end
if call('LINDEX', queue, 0) ~= segment then return reply(0) end
call('LPOP', queue)
local record = unpack_(ARGV[6])
record[1], record[2] = 'x:' .. call('HINCRBY', 'n', 'seq', 1), 'entries'
push(record[1], 7)
call('RPUSH', 'rejects', pack(record))
if call('EXISTS', queue) == 0 then call('LREM', 'rejects', 1, ARGV[6]) end
return reply(1)
