-- The ledger of a job.
--   job   hash:  v: the schema; last: the newest tick that is accounted for; born: the
--                first value of `last`, if no replica knew a better one; ok: the newest
--                tick that succeeded; paused: since when; control: the
--                entry of the newest pause or resume in `acts`;
--                retain: how long (ms) the ledger is kept after its last use; trig: the
--                newest trigger; made: when the ledger was created (µs); id: of this ledger, and a new one if it was created again
--                or repaired after a loss; outcome: of the run that ended last; open: the ticks of the
--                runs that have not ended, with a space before each; open:<tick>: the record of each; and the
--                fields of part_definitions
--   payloads  hash: tick -> payload of an open run. When the run ends without success, its entry in `runs` gets it
--   runs  list:  ended runs, newest first, as JSON
--   acts  list:  what operators have done, newest first, as JSON: at (ms), what, who, why and
--                the tick and, of a resume, since when the job was paused. Each script that
--                changes something for an operator adds an entry with the change, and none
--                when it is repeated. The newest ACTS are kept
-- The record of an open run has in JSON
--   run, holder, attempt, token, start: the attempt that holds it; run is '' if none does
--   til     when its hold ends unless it is renewed, or when a released run may be claimed
--   ttl     the greatest time (ms) until then
--   dead    the holder before it, if that has died
--   def     the definition of the holder, until its death is charged to it: see part_definitions
--   unsure  '1' if an attempt may have taken effect and no success was recorded, because its
--           holder died during the work or did not know
--   tries   the attempts that have ended, oldest first: attempt, holder, token, start, end,
--           error. Of more than TRIES, the first and the newest
--   asked   what an operator has requested, trigger or rerun, with who, why, at (ms), id, due: its instant (ms)
--           if it has an id, and size: of its payload
--   cancel  who has canceled it, why and at (ms)
--
-- A tick at or before `last` that is not open has ended. A triggered run has no scheduled
-- instant. In place of the tick, it has the negative of the instant (ms) of the trigger: no tick
-- has it, and it is less than `last` and `ok`. Of several triggers in one millisecond, each has its
-- own.
-- Numbers are decimal strings, because cjson rounds to 14 digits. Unknown fields are kept,
-- because a newer version has written them.
local SCHEMA = 1

-- This version can still work with a ledger of the next schema. Each ledger has a schema.
local function too_new(v)
  return tonumber(v) > SCHEMA + 1
end

-- server_time returns the server's time in ms, the unit of all instants, and in µs, for
-- callers that must return at an exact instant.
local function server_time()
  return server_ms(), time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format('%.0f', tonumber(number))
end

-- left_of returns for how many ms nobody may claim a run. If it is 0 or less, its holder is dead, or there is none.
local function left_of(record, now)
  return tonumber(record.til) - now
end

-- begins reports whether no attempt at a run that was requested for an instant has been made.
local function begins(record)
  return record.attempt == '0' and record.asked and record.asked.due
end

-- decode returns a record and its text. If the clock was set back, a run is held for at most its
-- TTL from now, and the next attempt waits for at most its pause. Otherwise it would be kept until the clock has
-- caught up.
local function decode(job, tick, text, now)
  local record = cjson.decode(text)
  if record.ttl and left_of(record, now) > tonumber(record.ttl) then
    record.til = whole(now + tonumber(record.ttl))
    text = cjson.encode(record)
    redis.call('HSET', job, 'open:' .. tick, text)
  end
  return record, text
end
