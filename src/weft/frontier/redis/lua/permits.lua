-- Permits for pages, shared by pods. Each step may be repeated.
--
--   permits:CRAWL   hash   pod -> how many pages it may have in all; in pod 0's database
-- ARGV: "give", crawl, pod, wanted      on pod 0: grants a pod the wanted total, as far as the limit allows
--       "set", crawl, given             on the pod: sets its total
--       "lower", crawl, wanted          on the pod: lowers its total, not below the pages stored and in flight
-- Reply: the total from now on.
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
