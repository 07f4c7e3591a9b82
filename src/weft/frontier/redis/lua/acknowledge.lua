-- A slot's batches up to this one are durable: what was prepared for them has ended.
--
-- ARGV: slot, batch.
local slot, batch = ARGV[3], ARGV[4]
for _, one in ipairs(call('ZRANGEBYSCORE', 'preps:' .. slot, '-inf', batch)) do
  local key = 'prep:' .. slot .. ':' .. one
  count('finished', call('HLEN', key))
  call('DEL', key)
end
call('ZREMRANGEBYSCORE', 'preps:' .. slot, '-inf', batch)
call('HSET', 'slots', slot, batch)
return reply()
