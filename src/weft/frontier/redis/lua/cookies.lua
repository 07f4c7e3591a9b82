-- Saves a crawl's cookies of a site for all processes; the site's leases carry their version.
--
--   C:CRAWL:SITE   string   number, a space, the client's bytes
-- ARGV: crawl, site, number, bytes.
if crawl(ARGV[3]).ended then return reply() end
local s = load(ARGV[4])
local l = lane(s, ARGV[3])
l.k = ARGV[5]
call('ZADD', line(ARGV[3], s), 'NX', 'inf', ARGV[4])
call('SET', 'C:' .. ARGV[3] .. ':' .. ARGV[4], ARGV[5] .. ' ' .. ARGV[6])
save(s)
return reply()
