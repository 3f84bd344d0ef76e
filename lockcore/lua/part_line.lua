-- The line of a name: `queue` orders the attempts, `seen` says until when (ms on
-- this server's clock) each one is taken to be alive.
-- An attempt begins `n<kind>1:<process>.<number>.<t|u>`; its process listens on the
-- channel `<prefix>:ch:<process>`. `t`: PUBLISH's count of receivers is true. The
-- kind is `l` (mutex), `x` (reentrant) or `s` (read-write). All kinds of lock stand
-- in one line, and each passes over those of another: they look, and are told that
-- the name is in use by another kind.

-- How long (ms) a lock handed to a waiter stands until that confirms.
local GRANT = 1000

-- How long (ms) a waiter of this ttl keeps its place without being heard of:
-- three times the interval at which it looks.
local function lapse_of(ttl)
  return math.ceil(math.max(tonumber(ttl), 1000) * 3.3)
end

local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function process_of(attempt)
  return string.match(attempt, '^n%a1:(%w+)%.%w+%.(%a)')
end

-- tell publishes to the process of an attempt; answers the receivers, or nil if
-- nobody can know. pcall: an ACL may forbid PUBLISH, and that must stop nothing; the
-- refusal that it answers is not 0 either.
local function tell(lock, attempt, kind, rest)
  local process, counts = process_of(attempt)
  if not process then
    return 0
  end
  local prefix, name = string.match(lock, '^(.*):{(.*)}:lock$')
  local heard = redis.pcall('PUBLISH', prefix .. ':ch:' .. process,
    kind .. ' ' .. name .. ' ' .. rest .. attempt)
  if counts ~= 't' then
    return nil
  end
  return heard
end

local function drop(queue, seen, attempt)
  redis.call('ZREM', queue, attempt)
  redis.call('HDEL', seen, attempt)
end

-- Tells the first in line that it is, and in how many ms the lock ends by
-- itself. Speed only: who misses it looks once per TTL anyway.
local function tell_head(lock, queue)
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if head then
    tell(lock, head, 'h', string.format('%.0f ', redis.call('PTTL', lock)))
  end
end

-- stand takes a place in line for `me`, or keeps it and notes that `me` is alive;
-- answers its score. mode: 'look' and 'try' take none, so the answer may be nil.
local function stand(queue, seen, me, ttl, mode, now)
  local at = redis.call('ZSCORE', queue, me)
  if not at then
    if mode == 'look' or mode == 'try' then
      return nil
    end
    at = tonumber(mode)
    if not at then
      -- Behind the last one even if the clock was set back.
      local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
      at = math.max(now, (tonumber(last[2]) or 0) + 1)
    end
    redis.call('ZADD', queue, string.format('%.0f', at), me)
  end
  local lapse = lapse_of(ttl)
  redis.call('HSET', seen, me, string.format('%.0f', now + lapse))
  if redis.call('PTTL', queue) < lapse then
    redis.call('PEXPIRE', queue, lapse)
  end
  if redis.call('PTTL', seen) < lapse then
    redis.call('PEXPIRE', seen, lapse)
  end
  return at
end

-- placed is the answer to one in line: {2, left, place} for the first three, as
-- head and holder may die together, else {3, left, place}. left: ms, by default
-- what is left of the lock.
local function placed(lock, queue, me, at, left)
  local code = 3
  for _, near in ipairs(redis.call('ZRANGE', queue, 0, 2)) do
    if near == me then
      code = 2
    end
  end
  return {code, left or redis.call('PTTL', lock), string.format('%.0f', tonumber(at))}
end
