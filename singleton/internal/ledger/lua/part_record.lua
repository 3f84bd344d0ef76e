-- The ledger of a job: its keys, the records of open runs, and how scripts read a record. It needs part_clock.
--   job   hash, with the fields of part_definitions and
--     v         the schema; job_open writes it together with `last`
--     id        of this ledger; a new one if the ledger was created again, or repaired after a loss of data
--     made      when the ledger was created (µs)
--     last      the newest accounted tick, that is, claimed or skipped
--     born      the first value of `last`, if no replica knew a better one
--     ok        the newest tick that succeeded
--     outcome   of the run that ended last
--     paused    since when the job is paused
--     control   the entry of the newest pause or resume in `acts`
--     retain    how long (ms) the ledger is kept after its last use
--     trig      the newest trigger
--     open      the ticks of the open runs, with a space before each; open:<tick> is the record of one
--   payloads  hash: tick -> payload of an open run. If the run does not succeed, its entry in `runs` gets it
--   runs  list, the history: ended runs and skipped ticks, newest first, as JSON
--   acts  list, the actions of operators, newest first, as JSON: at (ms), what, who, why, tick, and of a resume
--         also since, the begin of the pause. A script that changes something for an operator adds an entry.
--         A repeated request adds none. The newest ACTS are kept
-- An open run has not ended. Its record is JSON:
--   run, holder, attempt, token, start: the attempt that holds the run; run is '' if none does
--   til     when the lease of the attempt ends; of a released run, when it may be claimed
--   ttl     the longest time (ms) until til: see decode
--   dead    the holder of the attempt before, if it died
--   def     the definition of the holder, until its death is charged to that definition: see part_definitions
--   unsure  '1' if an attempt may have taken effect: its holder died during the work, or did not know the outcome
--   tries   ended attempts, oldest first: attempt, holder, token, start, end, error. At most TRIES, the first and the
--           newest ones
--   asked   the request of an operator: what (trigger or rerun), who, why, at (ms). After TriggerAt also id, size (of
--           the payload), and until a rerun due, its instant (ms)
--   cancel  who canceled the run, why and at (ms)
--
-- A tick identifies a run in all scripts. Of a scheduled run, it is the scheduled instant (ms). Of a triggered run, it
-- is the negative instant (ms) of the trigger: no schedule has it, and it is less than `last` and `ok`. Each of several
-- triggers in one millisecond has its own. A tick at or before `last` that is not open has ended or was skipped.
-- Numbers are decimal strings, because cjson rounds to 14 digits. Unknown fields are kept, because a newer version has
-- written them.
local SCHEMA = 1

-- too_new reports whether this version cannot work with a ledger. It can work with the next schema. v is never missing.
local function too_new(v)
  return tonumber(v) > SCHEMA + 1
end

-- server_time returns the server's time in ms, the unit of stored instants, and in µs, the unit of replies.
local function server_time()
  return server_ms(), time[1] * 1000000 + time[2]
end

-- whole formats a number without a fraction and without an exponent.
local function whole(number)
  return string.format('%.0f', tonumber(number))
end

-- left_of returns how many ms are left until a run may be claimed. It may be claimed now if they are 0 or less.
local function left_of(record, now)
  return tonumber(record.til) - now
end

-- begins reports whether TriggerAt requested the run and no attempt was made.
local function begins(record)
  return record.attempt == '0' and record.asked and record.asked.due
end

-- decode returns a record and its text. til is at most ttl from now. Otherwise, after the clock was set back, nobody
-- could claim the run until the clock has caught up.
local function decode(job, tick, text, now)
  local record = cjson.decode(text)
  if record.ttl and left_of(record, now) > tonumber(record.ttl) then
    record.til = whole(now + tonumber(record.ttl))
    text = cjson.encode(record)
    redis.call('HSET', job, 'open:' .. tick, text)
  end
  return record, text
end
