-- job_at: add a run of a job at an instant.
--
-- KEYS[1] job      hash, the job's state
-- KEYS[2] due      sorted set, id -> instant
-- KEYS[3] payloads hash, id -> payload
-- KEYS[4] runs     list, ended runs
-- KEYS[5] acts     list, what operators have done
-- ARGV[1] id       of the run
-- ARGV[2] at       ms, the instant
-- ARGV[3] payload  of the run
-- ARGV[4] who      the caller
-- ARGV[5] why      the reason; may be empty
-- ARGV[6] most     runs that wait at most
-- ARGV[7] retain   ms, how long the ledger is kept if it has no value of its own
-- ARGV[8] channel  the channel of the job
--
-- Returns {1} the run waits, or was opened before
--         {2} the limit is reached
--         {18} the id has another instant or payload
--         {19} the id was canceled before its run was opened
--         or the reply of part_ledger
--
-- The first script of a replica after the instant opens the run. If the message about a run that is earlier than
-- all others is lost, replicas learn of it at their next check.
--
-- Twice is safe: the id is known.
local job, due, payloads, runs, acts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, at, sum = ARGV[1], ARGV[2], redis.sha1hex(ARGV[3])

--@include clock
--@include job
--@include due

--@include ledger

local before = called(payloads, name)
if before then
  return {(before.due ~= at or before.sum ~= sum) and 18 or before.no and 19 or 1}
end
if redis.call('ZCOUNT', due, 0, '+inf') >= tonumber(ARGV[6]) then
  return {2}
end
local now = server_time()
redis.call('ZADD', due, at, name)
call(payloads, name, {who = ARGV[4], why = ARGV[5], at = whole(now), due = at, size = #ARGV[3], sum = sum}, ARGV[3])
stay(job, retain or ARGV[7], due, runs, acts, payloads)
if coming(due, 1)[1] == name then
  announce(ARGV[8], 'at ' .. at)
end
return {1}
