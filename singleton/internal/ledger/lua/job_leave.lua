-- job_leave: a replica runs no more ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- ARGV[1] me      the replica
-- ARGV[2] channel the channel of the job
--
-- Returns 1 it was registered, 0 it was not, or has left before.
--
-- The others are notified, as another definition may act from now on.
--
-- Twice is safe: the second time it is gone.
local left = redis.call('HDEL', KEYS[1], 'live:' .. ARGV[1])
if left == 1 then
  redis.pcall('PUBLISH', ARGV[2], 'definition')
end
return left
