-- job_abandon: release a run, so that any replica can claim it. Claim.Abandon and Claim.Unlock send it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] tomb    string, refuses a claim of this attempt that arrives later
-- ARGV[1] me      id of the attempt
-- ARGV[2] tick    the run: see part_record
-- ARGV[3] work    '0' had not begun: the attempt does not count; '1' has failed; '2' may have taken effect
-- ARGV[4] keep    ms, TTL of the tombstone
-- ARGV[5] error   of the attempt
-- ARGV[6] took    ms, duration of the work; '' if it ends now
-- ARGV[7] wait    ms until the run may be claimed; a canceled run does not wait
-- ARGV[8] channel of the job
--
-- Returns 1 released
--         0 this attempt does not hold the run
--
-- If the request is lost, the lease ends, and the next claim finds a dead holder.
--
-- Twice is safe: the second time this attempt does not hold the run, and the answer is 0.
local job, tomb = KEYS[1], KEYS[2]
local me, tick = ARGV[1], ARGV[2]

-- From record: server_time, whole. From finish: announce, end_of. From job: read, write, add_try.
--@include clock
--@include record
--@include finish
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
  add_try(record, end_of(record, ARGV[6], now), ARGV[5])
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
