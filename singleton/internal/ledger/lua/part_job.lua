-- The ledger of a job.
--   job   hash:  v schema; last the newest tick that is accounted for; born what
--                `last` began with if nobody knew better; ok the newest tick that
--                succeeded; freed when the last run ended, hold 'begin end' of the
--                time up to then for which runs were held without a gap; next the
--                tick to come; paused, resumed when, halt 'begin end'
--                of the last pause; retain how long (ms) it outlives its last use;
--                trig the newest trigger; id of this ledger, another when it was
--                begun again or set right after a loss; open:<tick> for each open run,
--                as `open` may be lost alone; and what part_generation says
--   open  hash:  tick -> record of a run that has not ended; unsure '1' if an attempt
--                may have had an effect without success being recorded: its holder
--                died in the midst of it, or left it without knowing; seen when its
--                holder was heard of last, held since when runs are held without a gap;
--                gen the generation that claimed it
--   runs  list:  ended runs, newest first, as JSON
-- A tick at or before `last` that is not open has ended for good. What a trigger
-- runs has no scheduled instant: its tick is its own instant plus TRIGGER, which
-- no schedule reaches.
-- Numbers are kept as decimal strings: cjson rounds to 14 digits. Fields that are
-- not known here are left as they are: a newer version has put them there.
local SCHEMA = 1
local TRIGGER = 140737488355328

-- The server's time: ms, which all instants are kept in, and µs, for who is to
-- come back on the dot.
local function server_time()
  local time = redis.call('TIME')
  local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.floor(us / 1000), us
end

local function whole(number)
  return string.format('%.0f', number)
end

local function triggered(tick)
  return tonumber(tick) >= TRIGGER
end

-- instant is when a tick comes due, a trigger's too.
local function instant(tick)
  return tonumber(tick) % TRIGGER
end

-- A ledger of the next version can still be kept by this one.
local function too_new(v)
  return tonumber(v or 1) > SCHEMA + 1
end

local function read(open, tick)
  local text = redis.call('HGET', open, tick)
  return text and cjson.decode(text)
end

-- left_of is for how many ms a run is still held; not positive: it is dead.
local function left_of(record, now)
  return tonumber(record.til) - now
end

-- held_until is when the hold on a run ended that nobody holds now: where it was
-- given up, when its holder was heard of last.
local function held_until(record)
  return math.max(tonumber(record.til), tonumber(record.seen))
end

-- begin_of is when a span of time began; '' if there is none.
local function begin_of(span)
  return string.match(span or '', '^(%d+) ') or ''
end

-- account makes a tick the newest that is accounted for; never goes back.
local function account(job, tick)
  if not triggered(tick) and tonumber(tick) > tonumber(redis.call('HGET', job, 'last') or 0) then
    redis.call('HSET', job, 'last', tick)
  end
end

-- follow lets a key live as long as the job does.
local function follow(job, key)
  local ttl = redis.call('PTTL', job)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, ttl)
  else
    redis.call('PERSIST', key)
  end
end

local function log(job, runs, keep, entry)
  redis.call('LPUSH', runs, cjson.encode(entry))
  redis.call('LTRIM', runs, 0, tonumber(keep) - 1)
  follow(job, runs)
end

-- settle ends the run of a tick for good and writes it down. It was held until
-- `freed`, or until now.
local function settle(job, open, runs, keep, tick, record, outcome, reason, now, freed)
  freed = whole(freed or now)
  redis.call('HDEL', open, tick)
  redis.call('HDEL', job, 'open:' .. tick)
  redis.call('HSET', job, 'freed', freed, 'hold', record.held .. ' ' .. freed)
  account(job, tick)
  if outcome == 'succeeded' and not triggered(tick)
    and tonumber(tick) > tonumber(redis.call('HGET', job, 'ok') or 0) then
    redis.call('HSET', job, 'ok', tick)
  end
  log(job, runs, keep, {
    tick = tick, attempt = record.attempt, holder = record.holder, token = record.token,
    start = record.start, ['end'] = whole(now), outcome = outcome, error = reason,
  })
end

-- skip writes down ticks that are not run. They follow on `last`; if the newest
-- entry is of ticks up to there, skipped for the same reason, it is made longer. An
-- entry of a run has no `last`; one that is spoilt is left alone.
local function skip(job, runs, keep, last, first, newest, count, reason)
  local _, before = pcall(cjson.decode, redis.call('LINDEX', runs, 0) or '{}')
  if type(before) == 'table' and before.error == reason and before.last == last then
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
  else
    redis.call('PEXPIRE', job, retain)
  end
  follow(job, open)
  follow(job, runs)
end

-- announce tells all replicas that something of the job changed. A hint. That an
-- attempt begins goes to a channel of its own, which only onlookers listen to.
local function announce(job, what, channel)
  local prefix, name = string.match(job, '^(.*):{job/(.*)}:job$')
  redis.pcall('PUBLISH', prefix .. ':job:' .. name .. (channel or ''), what)
end

local function announce_begin(job, tick)
  announce(job, 'begins ' .. tick, '{begins}')
end
