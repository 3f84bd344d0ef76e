-- job_pause: stop or resume the claiming of ticks of a job.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] acts    list, what operators have done
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] pause   '1' pause, '0' resume
-- ARGV[2] who     the operator
-- ARGV[3] why     the reason; may be empty
-- ARGV[4] channel the channel of the job
--
-- Returns {1} done, or the reply of part_ledger.
--
--	claiming ──pause──► paused ──resume──► claiming
--
-- If the message is lost, replicas notice a pause at their next claim, and its end at their next
-- check. A caller that dies has sent the request or has not.
--
-- Twice is safe: a paused job keeps the time since which it is paused, and who did it.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

--@include clock
--@include record
--@include end
--@include job

--@include ledger

-- If the clock was set back, the newest pause or resume still has the greatest time.
local at = whole(math.max((server_time()), controlled(job)))
if (ARGV[1] == '1') == not paused then
  obey(job, acted(acts, at, paused and 'resume' or 'pause', nil, ARGV[2], ARGV[3], paused or nil))
end
stay(job, retain, (read_all(job, open, server_time())), runs, acts, payloads)
announce(ARGV[4], 'paused ' .. ARGV[1])
return {1}
