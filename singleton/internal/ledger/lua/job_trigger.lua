-- job_trigger: add a run of a job in addition to its schedule, now or at an instant.
--
-- KEYS[1] job      hash, the job's state
-- KEYS[2] tomb     string, the run of this request or of this id
-- KEYS[3] runs     list, ended runs
-- KEYS[4] acts     list, what operators have done
-- KEYS[5] payloads hash, tick -> payload of an open run
-- ARGV[1] id       of the run; '' for none: it is due now
-- ARGV[2] at       ms, its instant; '0' for now
-- ARGV[3] payload  of the run; may be empty
-- ARGV[4] most     open triggers at most, with an id or without one
-- ARGV[5] keep     ms, TTL of the tombstone after the instant
-- ARGV[6] who      the caller
-- ARGV[7] why      the reason; may be empty
-- ARGV[8] channel  the channel of the job
--
-- Returns {1, tick} the run is open for replicas; tick is its identity
--         {2} the limit is reached
--         {18} the id has another instant or payload
--         or the reply of part_ledger
--
--	none ──trigger──► open, not held ──claim, not before its instant──► as any run
--	                        └──cancel──► skipped
--
-- It is added like a run that was released before it began, so it is claimed, completed and taken over like any
-- other. A paused job claims a run with an id after the pause. Replicas learn of a run whose instant is later than
-- their next check, SOON, from that check.
--
-- Twice is safe: the tombstone has the run, unless the ledger was created again since.
local SOON = 35000 -- ms
local job, tomb, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, at, payload, who, why = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]

--@include clock
--@include record
--@include end
--@include job

--@include ledger

local sum = redis.sha1hex(payload)
local tick, due, of, maker = string.match(redis.call('GET', tomb) or '', '^(%S+) (%S+) (%S+) (%S+)$')
if maker == made then
  return (due ~= at or of ~= sum) and {18} or {1, tick}
end
local now = server_time()
local records = read_all(job, open, now)
local count = 0
for tick, record in pairs(records) do
  local asked = record.asked or {}
  if asked.id == name then -- it is open for longer than its tombstone is kept
    return ((asked.due or at) ~= at or (redis.call('HGET', payloads, tick) or '') ~= payload) and {18} or {1, tick}
  elseif tonumber(tick) < 0 and (asked.id ~= nil) == (name ~= '') then
    count = count + 1
  end
end
if count >= tonumber(ARGV[4]) then
  return {2}
end
tick = whole(math.min(-now, tonumber(newest_trigger or 0) - 1))
local asked = {what = 'trigger', who = who, why = why, at = whole(now)}
if name == '' then
  acted(acts, asked.at, 'trigger', tick, who, why)
else
  asked.id, asked.due = name, at
end
local ahead = math.max(0, tonumber(at) - now)
opened(job, open, tick, asked, at, payloads, payload, tomb, tick .. ' ' .. at .. ' ' .. sum .. ' ' .. made, ahead + ARGV[5])
redis.call('HSET', job, 'trig', tick)
records[tick] = read(job, tick, now)
stay(job, retain, records, runs, acts, payloads)
if ahead < SOON then
  announce(ARGV[8], 'open ' .. tick)
end
return {1, tick}
