-- job_pause: pause or resume a job for an operator. Ledger.Pause and Ledger.Resume send it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] acts    list, the actions of operators
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] pause   '1' pause, '0' resume
-- ARGV[2] who     the operator
-- ARGV[3] why     the reason; may be empty
-- ARGV[4] channel of the job
--
-- Returns {1} done
--         or the reply of part_ledger
--
--	claiming ──pause──► paused ──resume──► claiming
--
-- If the message is lost, replicas notice a pause at their next claim, and a resume when they read the state next.
--
-- Twice is safe: the second time the answer is {1}, and the job keeps the first time, operator and reason.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- From job: read_all, add_act, last_control, apply_control, set_ttls. From ledger: paused, retain, open.
--@include clock
--@include record
--@include finish
--@include job

--@include ledger

-- The newest pause or resume must have the greatest time, also if the clock was set back: job_open compares the times.
local at = whole(math.max((server_time()), last_control(job)))
if (ARGV[1] == '1') == not paused then
  apply_control(job, add_act(acts, at, paused and 'resume' or 'pause', nil, ARGV[2], ARGV[3], paused or nil))
end
set_ttls(job, retain, (read_all(job, open, server_time())), runs, acts, payloads)
announce(ARGV[4], 'paused ' .. ARGV[1])
return {1}
