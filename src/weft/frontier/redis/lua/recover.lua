-- A slot's process was started anew: what it had prepared and its store holds has ended, the rest is queued again, or
-- goes back to the parsers.
--
-- ARGV: slot, 1 if the machine was started anew since, number of (crawl pages) pairs, these, then items that the store has
-- since the last acknowledged batch.
-- Reply: the items that were under way; those that the store has and whose links may be missing: their end was never heard
-- of here, or a power cut may have taken what was on its way to other pods. Without such it has told all that it has.
local slot, rebooted, pairs_ = ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
local at = 6
for _ = 1, pairs_ do
  local c, stored = ARGV[at], tonumber(ARGV[at + 1])
  local had = tonumber(call('HGET', 'pages:' .. c, slot)) or 0
  if had ~= stored then
    call('HSET', 'pages:' .. c, slot, stored)
    pages(crawl(c), stored - had)
  end
  at = at + 2
end
local has = {}
for i = at, #ARGV do has[ARGV[i]] = true end

local again, under_way, unsure = {}, {}, {}
for _, batch in ipairs(call('ZRANGE', 'preps:' .. slot, 0, -1)) do
  local all = call('HGETALL', 'prep:' .. slot .. ':' .. batch)
  for i = 1, #all, 2 do
    if has[all[i]] then
      count('finished', 1)
      has[all[i]] = nil
      if rebooted then unsure[#unsure + 1] = all[i] end
    else
      again[#again + 1] = unpack_(all[i + 1])
    end
  end
  call('DEL', 'prep:' .. slot .. ':' .. batch)
end
call('DEL', 'preps:' .. slot)
table.sort(again, function(a, b) return a[4][1] > b[4][1] end)
for _, p in ipairs(again) do
  local item = p[4]
  if p[5] ~= '' then
    call('RPUSH', 'rejected', pack({ p[2], p[5], p[1], item }))
  else
    local s = load(p[1])
    if item[4] == 'p' then
      local k = crawl(p[2])
      flight(k, 1)
      if k.cap then
        local l = lane(s, p[2])
        l.f = l.f + 1
        if p[3] == 1 then l.p = l.p - 1 end
      end
    end
    if (p[7] or '') ~= '' then
      -- It was fetched, and its page may still lie in the spool: it is parsed again.
      mark(crawl(p[2]), item, 'l')
      returned({ p[6], '', p[1], p[2], 1, item, p[7], '' })
    else
      give_back(s, p[2], item, 0, true)
    end
    save(s)
    schedule(s)
  end
end

for n in pairs(has) do
  unsure[#unsure + 1] = n
  local text = call('HGET', 'lease', n)
  local where = 'lease'
  if not text then
    text = call('HGET', 'fetched', n)
    where = 'fetched'
  end
  if text then
    local rec = unpack_(text)
    drop_lease(n)
    if where == 'fetched' then
      call('HDEL', 'fetched', n)
      call('LREM', 'parse', 1, n)
    end
    count('finished', 1)
    local item, k = rec[6], crawl(rec[4])
    local s = load(rec[3])
    if item[4] == 'p' and rec[8] == '' then
      flight(k, -1)
      if k.cap then lane(s, rec[4]).f = lane(s, rec[4]).f - 1 end
    end
    mark(k, item, 'e')
    if rec[5] == 0 and rec[8] == '' then
      s.active = s.active - 1
      ended(s, now)
      under_way[#under_way + 1] = n
    end
    save(s)
    schedule(s)
  elseif tonumber(n) <= (tonumber(call('HGET', 'n', 'item')) or 0) then
    call('SADD', 'gone', n)
  end
end
call('SADD', 'crew', slot)
if #unsure == 0 then call('SREM', 'settling', slot) end
return reply(under_way, unsure)
