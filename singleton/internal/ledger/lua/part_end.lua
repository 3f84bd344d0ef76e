-- The end of a run and the history of a job. It needs part_record.

-- announce notifies those who watch a channel of a change of the job. 'ended <tick> <outcome>' is the end of a run.
-- Messages are hints, so an ACL that forbids PUBLISH stops nothing. The beginnings of attempts have a channel of
-- their own, which only observers subscribe to.
local function announce(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- end_of returns when the present attempt of a record ended, whose work took so long (ms): this request may be late.
-- took: '' for until now. If the clock was set, it is neither before the start nor later than now.
local function end_of(record, took, now)
  local start = tonumber(record.start)
  return math.max(start, math.min(now, start + (tonumber(took) or now)))
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

-- end_run ends the run of a tick, which was held until `ended`, records and announces it. A run that was skipped has
-- not begun.
local function end_run(job, runs, keep, payloads, channel, tick, record, outcome, reason, ended)
  local open, ok = unpack(redis.call('HMGET', job, 'open', 'ok'))
  local left = {}
  for other in string.gmatch(open, '%S+') do
    left[#left + 1] = other ~= tick and ' ' .. other or nil
  end
  local set = {'open', table.concat(left)}
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
