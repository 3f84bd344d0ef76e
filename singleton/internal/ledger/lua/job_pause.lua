-- job_pause: stop or resume the claiming of ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] acts    list, what operators have done
-- KEYS[4] due     sorted set, id -> instant
-- KEYS[5] payloads  hash, id -> payload
-- ARGV[1] pause   '1' pause, '0' resume
-- ARGV[2] retain  ms, how long a resumed ledger is kept if it has no value of its own
-- ARGV[3] who     the operator
-- ARGV[4] why     the reason; may be empty
-- ARGV[5] channel the channel of the job
--
-- Returns {1} done, or the reply of part_ledger.
--
--	claiming ──pause──► paused ──resume──► claiming
--
-- If the message is lost, replicas notice a pause at their next claim, and its end at their next
-- check. A caller that dies has sent the request or has not.
--
-- Twice is safe: a paused job keeps the time since which it is paused, and who did it.
local job, runs, acts, due, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--@include clock
--@include job

--@include ledger

redis.call('ZCOUNT', due, 0, 0) -- a key of another type fails here, and not half-way
-- If the clock was set back, the newest pause or resume still has the greatest time.
local at = whole(math.max((server_time()), controlled(job)))
if (ARGV[1] == '1') == not paused then
  obey(job, acted(acts, at, paused and 'resume' or 'pause', nil, ARGV[3], ARGV[4], paused or nil))
end
stay(job, retain or ARGV[2], due, runs, acts, payloads)
announce(ARGV[5], 'paused ' .. ARGV[1])
return {1}
