-- job_cancel: end the runs of a job on behalf of an operator.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] acts    list, what operators have done
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] run     ms, the tick or trigger; or 'id:' and an id of TriggerAt; or '' for all runs that have begun
-- ARGV[2] keep    ended runs to keep
-- ARGV[3] who     the operator
-- ARGV[4] why     the reason; may be empty
-- ARGV[5] channel the channel of the job
--
-- Returns {1, tick, tick, …} these are canceled
--         {17} the run is not open
--         or the reply of part_ledger
--
--	held ──cancel──► held, canceled ──the work returns──► recorded by the holder
--	                       └──holder dies, or releases it──► as below, by the next claim
--	not held, attempt 0 ──cancel──► skipped
--	not held, attempt 1 or more ──cancel──► failed, or unknown if an attempt may have taken effect
--
-- The holder learns it by message, and at the latest in the answer to its next renewal. A
-- caller that dies has sent the request or has not.
--
-- Twice is safe: a canceled run keeps who canceled it first. One that has ended is not open.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wanted, channel = ARGV[1], ARGV[5]

--@include clock
--@include record
--@include end
--@include job

--@include ledger

redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
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
      acted(acts, whole(now), 'cancel', tick, ARGV[3], ARGV[4])
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
        tried(record, record.til, 'its holder died')
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
