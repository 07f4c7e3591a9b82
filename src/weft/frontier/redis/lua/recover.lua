-- A slot's process was restarted: prepared items that its store holds have ended, the others are queued again, or go back to
-- the parse queue.
--
-- ARGV: slot, 1 if the machine was rebooted since, the store's last batch (0: not told), number of (crawl pages) pairs,
-- these, then items that the store has since the last acknowledged batch.
-- Reply: the items whose requests were in flight; the stored items whose links may be missing, because their end never
-- arrived here, or a power cut may have taken messages to other pods. Without such the slot has settled, and the batch is acknowledged: it is on
-- the disk, and a process killed before its own acknowledgement would report the same items again.
local slot, rebooted, last_batch, pairs_ = ARGV[3], ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])
local at = 7
for _ = 1, pairs_ do
  local c, stored = ARGV[at], tonumber(ARGV[at + 1])
  local counted = tonumber(call('HGET', 'pages:' .. c, slot)) or 0
  if counted ~= stored and not crawl(c).is_gone then
    call('HSET', 'pages:' .. c, slot, stored)
    local k = crawl(c)
    k.pages, k.changed = k.pages + stored - counted, true
  end
  at = at + 2
end
local in_store = {}
for i = at, #ARGV do in_store[ARGV[i]] = true end

local again, in_flight, unsure = {}, {}, {}
for _, batch in ipairs(call('ZRANGE', 'preps:' .. slot, 0, -1)) do
  local all = call('HGETALL', 'prep:' .. slot .. ':' .. batch)
  for i = 1, #all, 2 do
    if in_store[all[i]] then
      count('finished', 1)
      in_store[all[i]] = nil
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
    leased(crawl(p[2]), 1)
    if item[4] == 'p' then
      pages_out(s, crawl(p[2]), 1)
      local l = lane(s, p[2])
      if p[3] == 1 then l.p = math.max(0, l.p - 1) end
    end
    if (p[7] or '') ~= '' then
      -- It was fetched, and its page may still be in the spool: parse it again.
      mark(crawl(p[2]), item, 'l')
      returned({ p[6], '', p[1], p[2], 1, item, p[7], '' })
    else
      give_back(s, p[2], item, 0, true)
    end
    save(s)
    schedule(s)
  end
end

for n in pairs(in_store) do
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
    if rec[8] == '' then leased(k, -1) end
    if item[4] == 'p' and rec[8] == '' then pages_out(s, k, -1) end
    mark(k, item, 'e')
    if rec[5] == 0 and rec[8] == '' then
      s.active = s.active - 1
      ended(s, now)
      in_flight[#in_flight + 1] = n
    end
    save(s)
    schedule(s)
  elseif tonumber(n) <= (tonumber(head[4]) or 0) then
    call('SADD', 'gone', n)
  end
end
call('SADD', 'crew', slot)
if #unsure == 0 then
  call('SREM', 'settling', slot)
  local acknowledged = tonumber(call('HGET', 'slots', slot)) or 0
  if last_batch > acknowledged then call('HSET', 'slots', slot, fmt('%.0f', last_batch)) end
end
return reply(in_flight, unsure)
