-- job_trigger: add a run beside the schedule, now or at an instant. Ledger.Trigger and Ledger.TriggerAt send it.
--
-- KEYS[1] job      hash, the job's state: see part_record
-- KEYS[2] tomb     string, 'tick at sum made': the run of this request or id, its instant, the hash of its
--                  payload, and the ledger that it belongs to
-- KEYS[3] runs     list, the history
-- KEYS[4] acts     list, the actions of operators
-- KEYS[5] payloads hash, tick -> payload of an open run
-- ARGV[1] id       of the run; '' for Trigger
-- ARGV[2] at       ms, its instant; '0' for now
-- ARGV[3] payload  of the run; may be empty
-- ARGV[4] most     limit of open runs of Trigger, and as many of TriggerAt
-- ARGV[5] keep     ms, TTL of the tombstone after the instant
-- ARGV[6] who      the caller
-- ARGV[7] why      the reason; may be empty
-- ARGV[8] channel  of the job
--
-- Returns {1, tick} this or an earlier request has opened the run; tick identifies it
--         {2} `most` runs are open
--         {18} the id has another instant or payload
--         or the reply of part_ledger
--
--	none ──trigger──► open, not held ──claim, not before its instant──► like any run
--	                        └──cancel──► skipped
--
-- Until its claim, the run waits like a run that was released before its work began. While the job is
-- paused, nobody claims a run with an id. If the instant is later than the next check of each replica (SOON), no
-- message is needed: the check finds the run.
--
-- Twice is safe: the second request finds the tombstone, and the answer is the same {1, tick}. A tombstone of an
-- earlier ledger does not count.
local SOON = 35000 -- ms, longer than the 30 s between two checks
local job, tomb, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local run_id, at, payload, who, why = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]

-- From job: read, read_all, add_act, open_run, set_ttls. From ledger: open, retain, newest_trigger, made.
--@include clock
--@include record
--@include finish
--@include job

--@include ledger

local sum = redis.sha1hex(payload)
local tick, due, former_sum, ledger = string.match(redis.call('GET', tomb) or '', '^(%S+) (%S+) (%S+) (%S+)$')
if ledger == made then
  return (due ~= at or former_sum ~= sum) and {18} or {1, tick}
end
local now = server_time()
local records = read_all(job, open, now)
local count = 0
for tick, record in pairs(records) do
  local asked = record.asked or {}
  if asked.id == run_id then -- a run can be open for longer than its tombstone is kept
    return ((asked.due or at) ~= at or (redis.call('HGET', payloads, tick) or '') ~= payload) and {18} or {1, tick}
  elseif tonumber(tick) < 0 and (asked.id ~= nil) == (run_id ~= '') then
    count = count + 1
  end
end
if count >= tonumber(ARGV[4]) then
  return {2}
end
tick = whole(math.min(-now, tonumber(newest_trigger or 0) - 1))
local asked = {what = 'trigger', who = who, why = why, at = whole(now)}
if run_id == '' then
  add_act(acts, asked.at, 'trigger', tick, who, why)
else
  asked.id, asked.due = run_id, at
end
local ahead = math.max(0, tonumber(at) - now)
open_run(job, open, tick, asked, at, payloads, payload, tomb, tick .. ' ' .. at .. ' ' .. sum .. ' ' .. made, ahead + ARGV[5])
redis.call('HSET', job, 'trig', tick)
records[tick] = read(job, tick, now)
set_ttls(job, retain, records, runs, acts, payloads)
if ahead < SOON then
  announce(ARGV[8], 'open ' .. tick)
end
return {1, tick}
