-- job_retry: record a failed attempt of a run, and count another one on the same holder.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_job
-- ARGV[3] attempt the one that failed
-- ARGV[4] error   of that attempt
-- ARGV[5] took    ms, how long its work took; '' for until now
-- ARGV[6] begin   '1' count the next attempt, '0' record the failure only
-- ARGV[7] begins  the channel of the beginnings of attempts
--
-- Returns 1 done, 0 no longer held.
--
-- The holder records a failure before its pause and counts the next attempt after it. If the
-- first request is lost, the second one records the failure.
--
-- Twice is safe: the request names the failed attempt, so it is counted once.
local job, open, me, tick, failed = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

--@include clock
--@include job

local now = server_time()
local record = read(open, tick, now)
if not record or record.run ~= me then
  return 0
end
if record.attempt == failed then
  tried(record, end_of(record, ARGV[5], now), ARGV[4])
  if ARGV[6] == '1' then
    record.attempt = whole(tonumber(failed) + 1)
    record.start = whole(now)
    announce(ARGV[7], 'begins ' .. tick)
  end
  redis.call('HSET', open, tick, cjson.encode(record))
end
return 1
