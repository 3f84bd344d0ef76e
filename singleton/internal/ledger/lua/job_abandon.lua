-- job_abandon: release a run, so that any replica can make the next attempt.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] tomb    string, refuses requests of this run that are under way
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_record
-- ARGV[3] work    '0' had not begun: the attempt does not count; '1' has failed;
--                 '2' may have taken effect
-- ARGV[4] keep    ms, TTL of the tombstone
-- ARGV[5] error   of the attempt
-- ARGV[6] took    ms, how long the work took; '' for until now
-- ARGV[7] wait    ms, for which nobody may claim it from now on, unless it is canceled
-- ARGV[8] channel the channel of the job
--
-- Returns 1 released, 0 not held by this run.
--
-- If the request is lost, the run counts as a dead holder's when its lease ends.
--
-- Twice is safe: the second time this run does not hold it.
local job, tomb = KEYS[1], KEYS[2]
local me, tick = ARGV[1], ARGV[2]

--@include clock
--@include record
--@include end
--@include job

local now = server_time()
local record = read(job, tick, now)
if not record or record.run ~= me then
  redis.call('SET', tomb, 'abandoned', 'PX', ARGV[4], 'NX')
  return 0
end
if ARGV[3] == '0' then
  record.attempt = whole(tonumber(record.attempt) - 1)
else
  tried(record, end_of(record, ARGV[6], now), ARGV[5])
end
if ARGV[3] == '2' then
  record.unsure = '1'
end
local wait = record.cancel and '0' or ARGV[7]
record.run, record.til, record.ttl = '', whole(now + tonumber(wait)), wait
record.def = nil
write(job, tick, record)
redis.call('SET', tomb, 'abandoned', 'PX', ARGV[4])
announce(ARGV[8], 'open ' .. tick)
return 1
