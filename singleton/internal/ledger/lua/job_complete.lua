-- job_complete: record the outcome of a run, unless another has taken it over.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] payloads  hash, tick -> payload of an open run
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_record
-- ARGV[3] outcome 'succeeded', 'failed', or 'unknown' after a doubtful attempt
-- ARGV[4] error   what went wrong, or ''
-- ARGV[5] keep    ended runs to keep
-- ARGV[6] token   the fencing token of this run
-- ARGV[7] took    ms, how long the work took; '' for until now
-- ARGV[8] channel the channel of the job
--
-- Returns 1 recorded, now or by an earlier request of this run
--         0 superseded: another has the run, or has ended it
--
-- Twice is safe: the history has the end of this run, as far as it goes back. No
-- tombstone is needed, as a claim that arrives later finds the tick accounted for.
-- A run whose lease has expired may still be completed if none has taken it over.
local job, runs = KEYS[1], KEYS[2]
local me, tick, outcome, token = ARGV[1], ARGV[2], ARGV[3], ARGV[6]

--@include clock
--@include record

local now = server_time()
local text, record = redis.call('HGET', job, 'open:' .. tick), nil
if text then
  record = decode(job, tick, text, now)
end
if not record or record.run ~= me then
--@include end
--@include job
  -- recorded returns 1 for the entry of the end of this run. A takeover has another token.
  -- Another replica can only have recorded this token as 'unknown' or 'failed', which is also true.
  local function recorded(entry)
    if string.find(entry, token, 1, true) then
      local run = cjson.decode(entry)
      if run.token == token and run.outcome == outcome then
        return 1
      end
    end
  end
  return find(runs, recorded) or 0
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way

--@include end

end_run(job, runs, ARGV[5], KEYS[3], ARGV[8], tick, record, outcome, ARGV[4], end_of(record, ARGV[7], now))
return 1
