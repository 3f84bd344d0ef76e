-- job_refresh: check whether the state of a job without open runs is as the replica has read it, and show that the
-- replica is alive. Ledger.Refresh sends it.
--
-- KEYS[1] job     hash, the job's state: see part_definitions
-- KEYS[2] runs    list, the history
-- ARGV[1] me      id of the replica
-- ARGV[2] mark    of the state that the replica has read: see part_mark
--
-- Returns the server's time (µs) if the state is the same
--         0 if the replica must send job_open
--
-- An idle job costs one job_refresh per replica and check. So it includes little, and leaves rare cases to job_open.
--
-- Twice is safe: the second time the answer is the same, and the replica lives as much longer.
local job, me = KEYS[1], ARGV[1]

--@include clock
--@include mark

local now = server_ms()
local till, first, seen, rest = string.match(redis.call('HGET', job, 'live:' .. me) or '', '^(%d+) (%d+) (%d+) (.*)$')
if not till or tonumber(till) <= now or tonumber(seen) > now or mark(job, KEYS[2]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', job, 'live:' .. me, string.format('%.0f %s %.0f %s', now + till - seen, first, now, rest))
return string.format('%.0f', time[1] * 1000000 + time[2])
