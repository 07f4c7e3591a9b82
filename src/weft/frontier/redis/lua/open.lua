-- A process opens the frontier: a new epoch. If the server was restarted and has lost operations, every site waits a full
-- delay, and numbers continue far beyond those that may have been used.
--
-- ARGV: run id of the server, the last operation and the last item that the pod's processes have seen (operation "?": there
-- were some, but their number is unknown), new epoch (1 or 0).
-- Reply: the epoch, whether data was lost.
local run, mark = ARGV[3], ARGV[4]
local before = call('HGET', 'state', 'run')
local ops = tonumber(head[1]) or 0
local is_lost = 0
if before ~= run or (mark ~= '?' and tonumber(mark) > ops) then
  if mark == '?' or tonumber(mark) > ops then
    is_lost, lost, losses = 1, now, losses + 1
    append(tail, 'lost', fmt('%.0f', now))
    append(tail, 'losses', losses)
    append(tail, 'item', fmt('%.0f', math.max(tonumber(head[4]) or 0, tonumber(ARGV[5])) + 1000000))
    call('SUNIONSTORE', 'settling', 'crew')
    -- A crawl that was opened last may be lost, and its number may be in a store.
    if call('EXISTS', 'crawls') == 1 then call('HINCRBY', 'n', 'crawl', 1000) end
    call('HINCRBY', 'n', 'transient', 1000000)
    append(tail, 'stamp', fmt('%.0f', (tonumber(head[5]) or 0) + 1000000))
    if mark ~= '?' then tail[2] = tonumber(mark) + 1 end
  end
  call('HSET', 'state', 'run', run)
end
local epoch = call('HINCRBY', 'n', 'epoch', tonumber(ARGV[6]))
return reply(epoch, is_lost)
