-- job_leave: a replica runs no more ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- ARGV[1] me      the replica
-- ARGV[2] channel the channel of the job
--
-- Returns 1 it was alive, 0 it was not, or has left before.
--
-- If it was the last fit replica of its definition, the others are notified, as they may
-- claim ticks from now on.
--
-- Twice is safe: the second time it is gone.
local job, me = KEYS[1], ARGV[1]

--@include job
--@include generation

local list = replicas(job, (server_time()))
local mine = list[me]
if not mine then
  return 0
end
redis.call('HDEL', job, 'live:' .. me)
if not census(list, mine.order, me).fit then
  announce(ARGV[2], 'generation')
end
return 1
