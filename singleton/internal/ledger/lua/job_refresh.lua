-- job_refresh: a replica that has read the state of a job without open runs asks whether it has changed.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- ARGV[1] me      the replica
-- ARGV[2] mark    of the state that it has read, see part_mark
--
-- Returns the server's time (µs), 0 if the state must be read with job_open.
--
-- An idle job costs this script in each replica. So it includes little, and leaves to job_open whatever is rare.
--
-- Twice is safe: it only tells that the replica is alive.
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
