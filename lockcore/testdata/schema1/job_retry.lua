-- job_retry: count another attempt of a run, on the same holder.
--
-- KEYS[1] open    hash, tick -> run that has not ended
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the scheduled instant
-- ARGV[3] attempt the one that failed
-- ARGV[4] ttl     ms, for which the run is held without a renewal
--
-- Returns 1 the run is at the next attempt, 0 not mine any more.
--
-- Twice is safe: the failed attempt is named, so that it is counted once.
local text = redis.call('HGET', KEYS[1], ARGV[2])
local record = text and cjson.decode(text)
if not record or record.run ~= ARGV[1] then
  return 0
end
if record.attempt == ARGV[3] then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  record.attempt = string.format('%.0f', tonumber(ARGV[3]) + 1)
  record.start = string.format('%.0f', now)
  record.til = string.format('%.0f', now + tonumber(ARGV[4]))
  redis.call('HSET', KEYS[1], ARGV[2], cjson.encode(record))
end
return 1
