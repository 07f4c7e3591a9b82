-- Keeps a crawl's cookies of a site, for all processes; their version goes out with its leases.
--
--   C:CRAWL:SITE   string   version, a space, the client's bytes
-- ARGV: crawl, site, bytes.
local s = load(ARGV[4])
local l = lane(s, ARGV[3])
l.k = fmt('%d', tonumber(l.k) + 1)
call('SET', 'C:' .. ARGV[3] .. ':' .. ARGV[4], l.k .. ' ' .. ARGV[5])
save(s)
return reply(tonumber(l.k))
