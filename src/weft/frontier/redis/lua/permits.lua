-- Permits for pages, shared by pods. Each step may be repeated.
--
--   permits:CRAWL   hash   pod -> how many pages it may have; in pod 0's database
-- ARGV: "give", crawl, pod, wanted      pod 0 gives a pod so many in all, as far as the limit allows
--       "set", crawl, given             this pod may have so many
--       "lower", crawl, wanted          this pod gives back what it has neither used nor under way
-- Reply: the figure that holds from now on.
local what, c = ARGV[3], ARGV[4]
if what == 'give' then
  local pod, wanted = ARGV[5], tonumber(ARGV[6])
  local others = 0
  local all = call('HGETALL', 'permits:' .. c)
  for i = 1, #all, 2 do
    if all[i] ~= pod then others = others + tonumber(all[i + 1]) end
  end
  local most = tonumber(call('HGET', 'c:' .. c, 'max'))
  local given = most and math.max(0, math.min(wanted, most - others)) or wanted
  call('HSET', 'permits:' .. c, pod, fmt('%.0f', given))
  return reply(given)
end
local figure = tonumber(ARGV[5])
local k = crawl(c)
if what == 'lower' then
  figure = math.min(k.given or figure, math.max(figure, k.pages + k.flight))
end
call('HSET', 'c:' .. c, 'given', fmt('%.0f', figure))
k.given = figure
unblock(k, 200)
return reply(figure)
