-- The ledger of a job.
--   job   hash:  v: the schema; last: the newest tick that is accounted for; born: the
--                first value of `last`, if no replica knew a better one; ok: the newest
--                tick that succeeded; paused: since when; control: the
--                entry of the newest pause or resume in `acts`;
--                retain: how long (ms) the ledger is kept after its last use; trig: the
--                newest trigger; made: when the ledger was created (µs); id: of this ledger, and a new one if it was created again
--                or repaired after a loss; outcome: of the run that ended last; open: the ticks of the
--                runs that have not ended, with spaces between; open:<tick>: the record of each; and the
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
local TRIES = 10
local ACTS = 100

-- server_time returns the server's time in ms, the unit of all instants, and in µs, for
-- callers that must return at an exact instant.
local function server_time()
  return server_ms(), time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format('%.0f', tonumber(number))
end

-- instant returns when a run is due.
local function instant(tick, record)
  return tonumber(record and record.asked and record.asked.due) or math.abs(tonumber(tick))
end

-- This version can still work with a ledger of the next schema. Each ledger has a schema.
local function too_new(v)
  return tonumber(v) > SCHEMA + 1
end

-- left_of returns for how many ms nobody may claim a run. If it is 0 or less, its holder is dead, or there is none.
local function left_of(record, now)
  return tonumber(record.til) - now
end

-- begins reports whether no attempt at a run that was requested for an instant has been made.
local function begins(record)
  return record.attempt == '0' and record.asked and record.asked.due
end

-- is_held reports whether an attempt at a run is under way.
local function is_held(record, now)
  return record.run ~= '' and left_of(record, now) > 0
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

-- read returns the record of a run.
local function read(job, tick, now)
  local text = redis.call('HGET', job, 'open:' .. tick)
  return text and decode(job, tick, text, now)
end

-- ticks_of returns the ticks in the field `open`.
local function ticks_of(open)
  local ticks = {}
  for tick in string.gmatch(open or '', '%S+') do
    ticks[#ticks + 1] = tick
  end
  return ticks
end

-- read_all returns the records of the runs in the field `open` by their ticks, and in the order in which they were
-- opened tick, text, tick, text, …
local function read_all(job, open, now)
  local records, list, fields = {}, {}, {}
  local ticks = ticks_of(open)
  for i, tick in ipairs(ticks) do
    fields[i] = 'open:' .. tick
  end
  for from = 1, #ticks, 1000 do -- as unpack is limited
    for _, text in ipairs(redis.call('HMGET', job, unpack(fields, from, math.min(from + 999, #ticks)))) do
      local tick = ticks[#list / 2 + 1]
      list[#list + 1] = tick
      records[tick], list[#list + 1] = decode(job, tick, text, now)
    end
  end
  return records, list
end

-- write stores the record of an open run.
local function write(job, tick, record)
  redis.call('HSET', job, 'open:' .. tick, cjson.encode(record))
end

-- end_of returns when the present attempt of a record ended, whose work took so long (ms): this request may be late.
-- took: '' for until now. If the clock was set, it is neither before the start nor later than now.
local function end_of(record, took, now)
  local start = tonumber(record.start)
  return math.max(start, math.min(now, start + (tonumber(took) or now)))
end

-- tried adds the attempt of a record to those that have ended, unless it is there already.
local function tried(record, ended, reason)
  local tries = record.tries or {}
  local newest = tries[#tries]
  if newest and newest.attempt == record.attempt then
    return
  end
  if #tries == TRIES then
    table.remove(tries, 2)
  end
  tries[#tries + 1] = {
    attempt = record.attempt, holder = record.holder, token = record.token, start = record.start,
    ['end'] = whole(ended), error = reason,
  }
  record.tries = tries
end

-- given_up returns the outcome and the reason of a run that gets no further attempt.
local function given_up(record)
  if record.run == '' and record.unsure ~= '1' then
    local tries = record.tries or {} -- it has none if it was released before its work began
    return 'failed', #tries > 0 and tries[#tries].error or 'its holder released it'
  end
  return 'unknown', 'its holder died or released it'
end

-- follow gives a key the TTL of the job, which has none while it is paused.
local function follow(job, key)
  local ttl = redis.call('PTTL', job)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- log adds an entry to the history, and drops the oldest ones above the limit.
local function log(job, runs, keep, entry)
  local length = redis.call('LPUSH', runs, cjson.encode(entry))
  if length == 1 then
    follow(job, runs)
  elseif length > tonumber(keep) then
    redis.call('LTRIM', runs, 0, tonumber(keep) - 1)
  end
end

-- find returns the first result of a function for the entries of the history, newest first. It
-- reads a hundred at a time, as all of them can be megabytes.
local function find(runs, result)
  for from = 0, redis.call('LLEN', runs), 100 do
    for _, text in ipairs(redis.call('LRANGE', runs, from, from + 99)) do
      local found = result(text)
      if found then
        return found
      end
    end
  end
end

-- announce notifies those who watch a channel of a change of the job. 'ended <tick> <outcome>' is the end of a run.
-- Messages are hints, so an ACL that forbids PUBLISH stops nothing. The beginnings of attempts have a channel of
-- their own, which only observers subscribe to.
local function announce(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- end_run ends the run of a tick, which was held until `ended`, records and announces it. A run that was skipped has
-- not begun.
local function end_run(job, runs, keep, payloads, channel, tick, record, outcome, reason, ended)
  local open, ok = unpack(redis.call('HMGET', job, 'open', 'ok'))
  local left = {}
  for _, other in ipairs(ticks_of(open)) do
    left[#left + 1] = other ~= tick and other or nil
  end
  local set = {'open', table.concat(left, ' ')}
  local asked = record.asked or {}
  local entry = {tick = tick, outcome = outcome, error = reason, id = asked.id}
  if outcome == 'skipped' then
    entry.last, entry.count = tick, '1'
  else
    entry.attempt, entry.holder, entry.token = record.attempt, record.holder, record.token
    entry.start, entry['end'], entry.tries = record.start, whole(ended), record.tries
    set[3], set[4] = 'outcome', outcome
  end
  local payload = asked.size and redis.call('HGET', payloads, tick) -- a key of another type fails here
  if outcome ~= 'succeeded' then
    entry.size, entry.payload = asked.size, payload
  elseif tonumber(tick) > tonumber(ok or 0) then
    set[5], set[6] = 'ok', tick
  end
  redis.call('HDEL', job, 'open:' .. tick) -- the first write, as it also works without free memory
  redis.call('HSET', job, unpack(set))
  if asked.size then
    redis.call('HDEL', payloads, tick)
  end
  log(job, runs, keep, entry)
  announce(channel, 'ended ' .. tick .. ' ' .. outcome)
end

-- listed adds an entry to what operators have done.
local function listed(acts, entry)
  redis.call('LPUSH', acts, entry)
  redis.call('LTRIM', acts, 0, ACTS - 1)
end

-- acted adds what an operator has done, and returns the entry. It is the first write of a change,
-- so a damaged list fails here, and not half-way. The caller gives the list the TTL of the job.
local function acted(acts, at, what, tick, who, why, since)
  local entry = cjson.encode({at = at, what = what, tick = tick, who = who, why = why, since = since})
  listed(acts, entry)
  return entry
end

-- controlled returns when the job was paused or resumed last; 0: never.
local function controlled(job)
  local entry = redis.call('HGET', job, 'control')
  return entry and tonumber(cjson.decode(entry).at) or 0
end

-- obey pauses or resumes the job, as an entry of `acts` says.
local function obey(job, entry)
  local control = cjson.decode(entry)
  redis.call('HSET', job, 'control', entry)
  if control.what == 'pause' then
    redis.call('HSET', job, 'paused', control.at)
  else
    redis.call('HDEL', job, 'paused')
  end
end

-- opened opens the run of a tick that an operator has requested, like a run that was released before it began. Nobody
-- may claim it before `til`. The tombstone keeps for `keep` ms that it is done.
local function opened(job, open, tick, asked, til, payloads, payload, tomb, done, keep, unsure)
  if payload ~= '' then
    asked.size = #payload
    redis.call('HSET', payloads, tick, payload)
  end
  redis.call('SET', tomb, done, 'PX', whole(keep))
  redis.call('HSET', job, 'open', (open or '') .. ' ' .. tick, 'open:' .. tick, cjson.encode({
    run = '', holder = '', attempt = '0', token = '0', start = asked.at, til = til,
    asked = asked, unsure = unsure and '1' or nil,
  }))
end

-- stay keeps a job's keys for `retain` ms from now, or from the last instant of an open run if that is later, and
-- without a TTL while it is paused.
local function stay(job, retain, records, ...)
  local paused = redis.call('HEXISTS', job, 'paused') == 1
  local now, ahead = server_time(), 0
  for _, record in pairs(records) do
    ahead = math.max(ahead, begins(record) and left_of(record, now) or 0)
  end
  for _, key in ipairs({job, ...}) do
    if paused then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, whole(tonumber(retain) + ahead))
    end
  end
end
