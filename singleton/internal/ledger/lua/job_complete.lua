-- job_complete: record the outcome of a run, unless another attempt has claimed it. Claim.Complete sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] payloads  hash, tick -> payload of an open run
-- ARGV[1] me      id of the attempt
-- ARGV[2] tick    the run: see part_record
-- ARGV[3] outcome 'succeeded', 'failed', or 'unknown' if it failed and an attempt may have taken effect
-- ARGV[4] error   of the work; '' if it succeeded
-- ARGV[5] keep    entries of the history to keep
-- ARGV[6] token   fencing token of the attempt
-- ARGV[7] took    ms, duration of the work; '' if it ends now
-- ARGV[8] channel of the job
--
-- Returns 1 recorded, now or by an earlier request of this attempt
--         0 superseded: another attempt holds the run, or has ended it
--
-- The lease may have expired. An attempt is superseded only when another one claims the run. A claim that arrives after
-- the end needs no tombstone: it finds the tick accounted for.
--
-- Twice is safe: the second time the run is not open, and the answer is 1 while the history has its entry.
local job, runs = KEYS[1], KEYS[2]
local me, tick, outcome, token = ARGV[1], ARGV[2], ARGV[3], ARGV[6]

-- The other includes stand in the branches that need them, as each defines functions.
--@include clock
--@include record

local now = server_time()
local text, record = redis.call('HGET', job, 'open:' .. tick), nil
if text then
  record = decode(job, tick, text, now)
end
if not record or record.run ~= me then
-- From job: find.
--@include finish
--@include job
  -- recorded returns 1 for an entry with the token of this attempt and its outcome: an earlier request has recorded it.
  -- If another replica has ended the run after this attempt, the entry says 'unknown' or 'failed'. If this attempt
  -- reports the same, 1 is right, too.
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
redis.call('LLEN', runs) -- a key of a wrong type fails here, before the first write

-- end_run and end_of:
--@include finish

end_run(job, runs, ARGV[5], KEYS[3], ARGV[8], tick, record, outcome, ARGV[4], end_of(record, ARGV[7], now))
return 1
