-- job_cancel: end runs of a job for an operator. Ledger.Cancel and Ledger.CancelAt send it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] acts    list, the actions of operators
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] run     a tick: see part_record; or 'id:' and an id of TriggerAt; or '' for all runs with an attempt
-- ARGV[2] keep    entries of the history to keep
-- ARGV[3] who     the operator
-- ARGV[4] why     the reason; may be empty
-- ARGV[5] channel of the job
--
-- Returns {1, tick, tick, …} these runs are canceled
--         {17} the run is not open
--         or the reply of part_ledger
--
--	held ──cancel──► held, canceled ──the work returns──► its outcome is recorded by the holder
--	                       └──holder dies, or releases it──► the next claim ends it like a run that is not held
--	not held, attempt 0 ──cancel──► skipped
--	not held, attempt 1 or more ──cancel──► failed, or unknown if an attempt may have taken effect
--
-- The holder learns of the cancellation from a message, or else from the reply to its next renewal.
--
-- Twice is safe: a run that is still held is returned again, and keeps the first operator and reason. If the first
-- request has ended all of them, the answer is {17}.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wanted, channel = ARGV[1], ARGV[5]

-- From finish: follow, end_run. From job: read_all, is_held, write, add_act, add_try, given_up. From ledger: open.
--@include clock
--@include record
--@include finish
--@include job

--@include ledger

redis.call('LLEN', runs) -- a key of a wrong type fails here, before the first write
redis.call('HEXISTS', payloads, '')
local now = server_time()
local answer = {1}
local records, list = read_all(job, open, now)
for i = 1, #list, 2 do
  local tick = list[i]
  local record = records[tick]
  local held = is_held(record, now)
  local id = record.asked and record.asked.id
  if wanted == tick or wanted == '' and record.attempt ~= '0' or id and wanted == 'id:' .. id then
    answer[#answer + 1] = tick
    if not record.cancel then
      add_act(acts, whole(now), 'cancel', tick, ARGV[3], ARGV[4])
      follow(job, acts)
    end
    if held then
      record.cancel = record.cancel or {who = ARGV[3], why = ARGV[4], at = whole(now)}
      write(job, tick, record)
      announce(channel, 'cancel ' .. tick)
    elseif record.attempt == '0' and record.unsure ~= '1' then
      end_run(job, runs, ARGV[2], payloads, channel, tick, record, 'skipped', 'canceled')
    else
      if record.attempt ~= '0' then
        add_try(record, record.til, 'its holder died')
      end
      local outcome, reason = given_up(record)
      local ended = math.max(tonumber(record.start), math.min(now, tonumber(record.til)))
      end_run(job, runs, ARGV[2], payloads, channel, tick, record, outcome, 'canceled; ' .. reason, ended)
    end
  end
end
if #answer == 1 then
  return {17}
end
return answer
