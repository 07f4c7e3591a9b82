-- Gives a cluster back. KEYS: owner, epoch, clusters with a brain. ARGV: the owner's name, the cluster's id.
if redis.call('HGET', KEYS[1], 'name') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('INCR', KEYS[2]) -- what is in hands' queues is of a former epoch now
redis.call('ZREM', KEYS[3], ARGV[2])
return 1
