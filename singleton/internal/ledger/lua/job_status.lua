-- job_status: return the state of a job, remove dead replicas, and correct the ends of runs.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
--
-- Returns the reply of part_state; {10} if there is no ledger; {11} if its schema is
-- too new for this version.
--
-- Twice is safe: it removes replicas that are dead, and shortens runs to their TTL if the clock was
-- set back. Otherwise it only reads.
local job, open = KEYS[1], KEYS[2]

--@include job
--@include generation
--@include state

local v, last, gen = unpack(redis.call('HMGET', job, 'v', 'last', 'gen'))
if not last then
  return {10}
end
if too_new(v) then
  return {11}
end
local now, us = server_time()
local c = census(replicas(job, now), tonumber(gen), '')
return state(job, open, us, {replicas = c.same, others = c.others, mine = '1', own = 0})
