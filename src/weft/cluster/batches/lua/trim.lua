-- The brain has journalled results. KEYS: the run's results, the bytes in them, then bodies that lay beside them.
-- ARGV: the last id that is journalled, the bytes of what was.
redis.call('XTRIM', KEYS[1], 'MINID', ARGV[1])
redis.call('XDEL', KEYS[1], ARGV[1])
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
elseif redis.call('DECRBY', KEYS[2], ARGV[2]) < 0 then
  redis.call('DEL', KEYS[2])
end
for at = 3, #KEYS do redis.call('DEL', KEYS[at]) end
return 1
