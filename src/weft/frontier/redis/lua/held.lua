-- Whether a part of a rendered page may be asked for now.
--
-- ARGV: site, origin's code, crawl. Reply: why it may not, or nothing
local s, d = load(ARGV[3]), crawl(ARGV[5]).D
local b = s.breakers and s.breakers[ARGV[4]]
local why = ''
if b and b[1] > now then
  why = 'breaker'
elseif s.due > now + delay_of(s, d) then
  why = 'retry-after'
end
return reply(why)
