-- A lock that one node holds for a time. ARGV: key, node, time to live in milliseconds (0: release it).
-- Reply: the node that holds it now, or empty.
local key, node, ttl = ARGV[3], ARGV[4], tonumber(ARGV[5])
local holder = call('GET', key)
if holder and holder ~= node then return reply(holder) end
if ttl == 0 then
  call('DEL', key)
  return reply('')
end
call('SET', key, node, 'PX', ttl)
return reply(node)
