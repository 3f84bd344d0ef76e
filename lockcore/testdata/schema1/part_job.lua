-- The ledger of a job: `job` (hash: v schema, last the newest tick that is
-- accounted for, born what `last` began with if nobody knew better, ok the newest
-- that succeeded, freed when the last run ended, paused), `open` (hash: tick -> record of a run that has not
-- ended), `runs` (list of ended runs, newest first, as JSON). A tick at or before
-- `last` that is not open has ended for good.
-- Numbers are kept as decimal strings: cjson rounds to 14 digits.
local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function read(open, tick)
  local text = redis.call('HGET', open, tick)
  return text and cjson.decode(text)
end

-- left is for how many ms a run is still held; not positive: it is dead.
local function left_of(record, now)
  return tonumber(record.til) - now
end

-- account makes a tick the newest that is accounted for; never goes back.
local function account(job, tick)
  if tonumber(tick) > tonumber(redis.call('HGET', job, 'last') or 0) then
    redis.call('HSET', job, 'last', tick)
  end
end

-- log writes an entry to the ended runs, which live as long as the job does.
local function log(job, runs, keep, entry)
  redis.call('LPUSH', runs, cjson.encode(entry))
  redis.call('LTRIM', runs, 0, tonumber(keep) - 1)
  local ttl = redis.call('PTTL', job)
  if ttl > 0 then
    redis.call('PEXPIRE', runs, ttl)
  end
end

-- settle ends the run of a tick for good and writes it down.
local function settle(job, open, runs, keep, tick, record, outcome, reason, now)
  redis.call('HDEL', open, tick)
  redis.call('HSET', job, 'freed', whole(now))
  account(job, tick)
  if outcome == 'succeeded' and tonumber(tick) > tonumber(redis.call('HGET', job, 'ok') or 0) then
    redis.call('HSET', job, 'ok', tick)
  end
  log(job, runs, keep, {
    tick = tick, attempt = record.attempt, holder = record.holder, token = record.token,
    start = record.start, ['end'] = whole(now), outcome = outcome, error = reason,
  })
end

-- skip writes down ticks that are not run. They follow on `last`; if the newest
-- entry is of ticks up to there, skipped for the same reason, it is made longer.
local function skip(job, runs, keep, last, first, newest, count, reason)
  local text = redis.call('LINDEX', runs, 0)
  local before = text and cjson.decode(text)
  if before and before.outcome == 'skipped' and before.error == reason and before.last == last then
    redis.call('LPOP', runs)
    first = before.tick
    count = whole(tonumber(count) + tonumber(before.count))
  end
  log(job, runs, keep, {
    tick = first, last = newest, count = count, outcome = 'skipped', error = reason,
  })
end

-- stay keeps a job's keys alive for `retain` ms from now; a paused job stays.
local function stay(job, open, runs, retain)
  if redis.call('HEXISTS', job, 'paused') == 1 then
    redis.call('PERSIST', job)
    redis.call('PERSIST', open)
    redis.call('PERSIST', runs)
  else
    redis.call('PEXPIRE', job, retain)
    redis.call('PEXPIRE', open, retain)
    redis.call('PEXPIRE', runs, retain)
  end
end

-- announce tells all replicas that something of the job changed. A hint.
local function announce(job, what)
  local prefix, name = string.match(job, '^(.*):{job/(.*)}:job$')
  redis.pcall('PUBLISH', prefix .. ':job:' .. name, what)
end
