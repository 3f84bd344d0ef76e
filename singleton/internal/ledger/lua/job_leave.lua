-- job_leave: deregister a replica, which runs no more ticks of a job. Ledger.Leave sends it.
--
-- KEYS[1] job     hash, the job's state: see part_definitions
-- ARGV[1] me      id of the replica
-- ARGV[2] channel of the job
--
-- Returns 1 deregistered
--         0 the replica was not registered
--
-- The message makes the other replicas send job_open, which finds the definition that acts from now on.
--
-- Twice is safe: the second time the replica is not registered, and the answer is 0.
local left = redis.call('HDEL', KEYS[1], 'live:' .. ARGV[1])
if left == 1 then
  redis.pcall('PUBLISH', ARGV[2], 'definition')
end
return left
