-- job_pause: stop or resume the claiming of ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- ARGV[1] pause   '1' pause, '0' resume
-- ARGV[2] retain  ms, how long a resumed ledger is kept if it has no value of its own
-- ARGV[3] channel the channel of the job
--
-- Returns {1} done; {10} there is no ledger; {11} its schema is too new.
--
-- Twice is safe: a paused job keeps the time since which it is paused.
local job, open, runs = KEYS[1], KEYS[2], KEYS[3]

--@include job

local v, last, paused, retain = unpack(redis.call('HMGET', job, 'v', 'last', 'paused', 'retain'))
if not last then
  return {10}
end
if too_new(v) then
  return {11}
end
local now = whole((server_time()))
if ARGV[1] == '1' then
  redis.call('HSETNX', job, 'paused', now)
elseif paused then
  redis.call('HSET', job, 'resumed', now, 'halt', paused .. ' ' .. now)
  redis.call('HDEL', job, 'paused')
end
stay(job, open, runs, retain or ARGV[2])
announce(ARGV[3], 'paused ' .. ARGV[1])
return {1}
