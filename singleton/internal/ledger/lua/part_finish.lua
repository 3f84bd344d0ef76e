-- The end of a run, and the history of a job. It needs part_record.

-- announce publishes a change of the job, such as 'ended <tick> <outcome>'. Messages are hints, so an ACL that forbids
-- PUBLISH stops nothing. job_claim publishes begins of attempts on a channel that only observers subscribe to.
local function announce(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- end_of returns when the work of the present attempt ended. took is the duration of the work (ms), as the request may
-- be late; '' means that the work ends now. The end is never before the start or after now, even if the clock was set.
local function end_of(record, took, now)
  local start = tonumber(record.start)
  return math.max(start, math.min(now, start + (tonumber(took) or now)))
end

-- follow gives a key the TTL of the hash `job`. While the job is paused, the hash and its keys have no TTL.
local function follow(job, key)
  local ttl = redis.call('PTTL', job)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- add_entry adds an entry to the history, and drops its oldest entries if it has more than `keep`.
local function add_entry(job, runs, keep, entry)
  local length = redis.call('LPUSH', runs, cjson.encode(entry))
  if length == 1 then
    follow(job, runs)
  elseif length > tonumber(keep) then
    redis.call('LTRIM', runs, 0, tonumber(keep) - 1)
  end
end

-- end_run ends an open run: it adds an entry to the history, removes the record, and announces the end. ended is when
-- the last attempt ended; a skipped run has no attempt.
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
  local payload = asked.size and redis.call('HGET', payloads, tick) -- a key of a wrong type fails here
  if outcome ~= 'succeeded' then
    entry.size, entry.payload = asked.size, payload
  elseif tonumber(tick) > tonumber(ok or 0) then
    set[5], set[6] = 'ok', tick
  end
  redis.call('HDEL', job, 'open:' .. tick) -- the first write, because HDEL works without free memory, too
  redis.call('HSET', job, unpack(set))
  if asked.size then
    redis.call('HDEL', payloads, tick)
  end
  add_entry(job, runs, keep, entry)
  announce(channel, 'ended ' .. tick .. ' ' .. outcome)
end
