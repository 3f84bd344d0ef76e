-- The open runs of a job, and the actions of operators. It needs part_finish.
local TRIES = 10 -- ended attempts in a record
local ACTS = 100 -- entries of `acts`

-- instant returns when a run is due: the instant of TriggerAt, the scheduled instant, or the instant of the trigger.
local function instant(tick, record)
  return tonumber(record and record.asked and record.asked.due) or math.abs(tonumber(tick))
end

-- is_held reports whether an attempt has a valid lease on the run.
local function is_held(record, now)
  return record.run ~= '' and left_of(record, now) > 0
end

-- read returns the record of a run, or false if the run is not open.
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

-- read_all returns the open runs in two forms: their records by tick, and a list tick, text, tick, text, … in the order
-- in which the runs were opened. open is the field of that name.
local function read_all(job, open, now)
  local records, list, fields = {}, {}, {}
  local ticks = ticks_of(open)
  for i, tick in ipairs(ticks) do
    fields[i] = 'open:' .. tick
  end
  for from = 1, #ticks, 1000 do -- unpack fails with too many values
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

-- add_try adds the present attempt of a record to its ended attempts. A repeated call adds nothing.
local function add_try(record, ended, reason)
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

-- find calls result with each entry of the history, newest first, until it returns a value, and returns that value. It
-- reads a hundred entries at a time, as all of them can be megabytes.
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

-- push_act adds an entry to `acts`.
local function push_act(acts, entry)
  redis.call('LPUSH', acts, entry)
  redis.call('LTRIM', acts, 0, ACTS - 1)
end

-- add_act adds the action of an operator to `acts`, and returns the entry. It must be the first write of a script, so
-- that a key of a wrong type fails before anything is changed. The caller gives the list the TTL of the job.
local function add_act(acts, at, what, tick, who, why, since)
  local entry = cjson.encode({at = at, what = what, tick = tick, who = who, why = why, since = since})
  push_act(acts, entry)
  return entry
end

-- last_control returns when the job was paused or resumed last, or 0 if it never was.
local function last_control(job)
  local entry = redis.call('HGET', job, 'control')
  return entry and tonumber(cjson.decode(entry).at) or 0
end

-- apply_control pauses or resumes the job as the entry of `acts` says.
local function apply_control(job, entry)
  local control = cjson.decode(entry)
  redis.call('HSET', job, 'control', entry)
  if control.what == 'pause' then
    redis.call('HSET', job, 'paused', control.at)
  else
    redis.call('HDEL', job, 'paused')
  end
end

-- open_run opens a run that an operator requested. It is like a run that was released before it began. Nobody may claim
-- it before til. tomb gets the value done for keep ms, so that a repeated request finds it.
local function open_run(job, open, tick, asked, til, payloads, payload, tomb, done, keep, unsure)
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

-- set_ttls keeps the hash `job` and the other keys for retain ms: from now, or from the last instant of an open run if
-- that is later. While the job is paused, they have no TTL.
local function set_ttls(job, retain, records, ...)
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
