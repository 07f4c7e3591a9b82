-- Opens a crawl by its name, creating it where there is none, or changes the one of a number; these settings replace its
-- earlier ones.
--
-- ARGV: name, number (empty: by name), seed, max, cap, depth, inflight, maps, section (empty: none of its own), weight, bloom
-- (BITS:HASHES, "server", or empty).
-- Reply: number (0: there is none; -1: a max_depth cannot be added any more), seed, bloom, name, 1 if its sites are yet to be
-- scheduled anew, 1 if depths are known: what is queued has a fingerprint then, also when the max_depth is taken away ("any").
local name, number = ARGV[3], ARGV[4]
if number == '' then
  number = call('HGET', 'crawls', name)
  if not number then
    number = tostring(call('HINCRBY', 'n', 'crawl', 1))
    call('HSET', 'crawls', name, number)
    call('HSET', 'c:' .. number, 'name', name, 'seed', ARGV[5], 'bloom', ARGV[13])
  end
end
local key = 'c:' .. number
local k = crawl(number)
if k.is_gone then return reply(0, '', '', '', 0, 0) end
if ARGV[8] ~= '' and not k.depths and k.seen > 0 then return reply(-1, '', '', '', 0, 0) end
local before = call('HMGET', key, 'section', 'cap')
for i, field in ipairs({ 'max', 'cap', 'depth', 'inflight', 'maps', 'section' }) do
  if ARGV[5 + i] ~= '' then
    call('HSET', key, field, ARGV[5 + i])
  elseif field == 'depth' and k.depths then
    call('HSET', key, field, 'any')
  else
    call('HDEL', key, field)
  end
end
call('HSET', key, 'weight', ARGV[12])
-- A site that has used up its budget waits for an event, as one does whose delay was too long.
if (ARGV[11] ~= (before[1] or '') or ARGV[7] ~= (before[2] or '')) and k.seen > 0 then call('HSET', key, 'moving', 1) end
crawls[number] = nil
k = crawl(number)
-- What has waited for a permit does not need one any more.
if not (k.max or k.inflight) and call('DEL', 'blocked:' .. number) == 1 then call('HSET', key, 'moving', 1) end
unblock(k, 200)
local moving = call('HGET', key, 'moving') and 1 or 0
return reply(tonumber(number), call('HGET', key, 'seed'), call('HGET', key, 'bloom'), call('HGET', key, 'name'), moving,
  k.depths and 1 or 0)
