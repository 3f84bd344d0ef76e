-- job_trigger: add a run of a job, now, in addition to its schedule.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] tomb    string, the reply to this request
-- KEYS[3] acts    list, what operators have done
-- ARGV[1] most    open triggers at most
-- ARGV[2] keep    ms, TTL of the tombstone
-- ARGV[3] who     the operator
-- ARGV[4] why     the reason; may be empty
-- ARGV[5] channel the channel of the job
--
-- Returns {1, tick} the run is open for replicas; tick is its identity
--         {2} the limit is reached
--         or the reply of part_ledger
--
-- It is added like a run that was released before it began, so it is claimed,
-- completed and taken over like any other.
--
-- Twice is safe: the tombstone has the reply.
local job, tomb, acts = KEYS[1], KEYS[2], KEYS[3]

--@include clock
--@include job

local before = redis.call('GET', tomb)
if before then
  return {1, before}
end
--@include ledger

local count = 0
for _, tick in ipairs(ticks_of(open)) do
  if triggered(tick) then
    count = count + 1
  end
end
if count >= tonumber(ARGV[1]) then
  return {2}
end
local now = server_time()
local tick = whole(math.min(-now, tonumber(newest_trigger or 0) - 1))
request(job, acts, tomb, ARGV[2], tick, 'trigger', ARGV[3], ARGV[4])
redis.call('HSET', job, 'trig', tick)
announce(ARGV[5], 'open ' .. tick)
return {1, tick}
