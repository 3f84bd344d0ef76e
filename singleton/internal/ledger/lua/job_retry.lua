-- job_retry: count another attempt of a run, on the same holder.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the scheduled instant
-- ARGV[3] attempt the one that failed
-- ARGV[4] begins  the channel of the beginnings of attempts
--
-- Returns 1 the run is at the next attempt, 0 no longer held.
--
-- Twice is safe: the request names the failed attempt, so it is counted once.
local job, open, me, tick, failed = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

--@include job

local record = read(open, tick)
if not record or record.run ~= me then
  return 0
end
if record.attempt == failed then
  record.attempt = whole(tonumber(failed) + 1)
  record.start = whole((server_time()))
  redis.call('HSET', open, tick, cjson.encode(record))
  announce(ARGV[4], 'begins ' .. tick)
end
return 1
