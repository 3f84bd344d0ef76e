-- job_leave: a replica runs no more ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] live    hash, replica -> alive until
-- ARGV[1] me      the replica
--
-- Returns 1 it was of the present generation, 0 it was not, or has left before.
--
-- If it was the last one, replicas of an older generation are told, as they may
-- claim ticks again.
--
-- Twice is safe: the second time it is gone.
local job, live = KEYS[1], KEYS[2]
local left = redis.call('HDEL', live, ARGV[1])

--@include job

if left == 1 and alive(live, (server_time())) == 0 then
  announce(job, 'generation')
end
return left
