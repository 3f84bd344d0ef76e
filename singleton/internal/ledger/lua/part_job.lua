-- The open runs of a job, and what operators do with it. It needs part_record and part_end.
local TRIES = 10
local ACTS = 100

-- instant returns when a run is due.
local function instant(tick, record)
  return tonumber(record and record.asked and record.asked.due) or math.abs(tonumber(tick))
end

-- is_held reports whether an attempt at a run is under way.
local function is_held(record, now)
  return record.run ~= '' and left_of(record, now) > 0
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
