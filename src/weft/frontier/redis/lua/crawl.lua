-- Opens a crawl by its name, creating it where there is none; these limits replace its earlier ones.
--
-- ARGV: name, seed, max, cap, depth, inflight, maps (empty: no such limit), bloom (BITS:HASHES, "server", or empty).
--   crawls   hash   name -> number
-- Reply: number, seed, bloom.
local number = call('HGET', 'crawls', ARGV[3])
if not number then
  number = call('HINCRBY', 'n', 'crawl', 1)
  call('HSET', 'crawls', ARGV[3], number)
  call('HSET', 'c:' .. number, 'name', ARGV[3], 'seed', ARGV[4], 'bloom', ARGV[10])
end
local key = 'c:' .. number
for i, field in ipairs({ 'max', 'cap', 'depth', 'inflight', 'maps' }) do
  if ARGV[4 + i] == '' then
    call('HDEL', key, field)
  else
    call('HSET', key, field, ARGV[4 + i])
  end
end
unblock(crawl(tostring(number)), 200)
return reply(tonumber(number), call('HGET', key, 'seed'), call('HGET', key, 'bloom'))
