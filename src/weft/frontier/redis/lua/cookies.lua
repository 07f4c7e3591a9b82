-- Saves a crawl's cookies of a site for all processes; the site's leases carry their version.
--
--   C:CRAWL:SITE   string   number, a space, the client's bytes
-- ARGV: crawl, site, number, bytes.
local s = load(ARGV[4])
local l = lane(s, ARGV[3])
l.k = ARGV[5]
call('SET', 'C:' .. ARGV[3] .. ':' .. ARGV[4], ARGV[5] .. ' ' .. ARGV[6])
save(s)
return reply()
