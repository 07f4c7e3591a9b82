-- Where one crawl stands. ARGV: crawl. Reply: 1 (0: there is none), queued, leased, pages, seen, set aside.
local k = crawl(ARGV[3])
return reply(k.is_gone and 0 or 1, k.queued, k.leased, k.pages, k.seen, call('HLEN', 'aside:' .. ARGV[3]))
