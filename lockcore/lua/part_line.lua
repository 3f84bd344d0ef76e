-- The line of a name: `queue` orders the attempts, `seen` says until when (ms on
-- this server's clock) each one is taken to be alive. Its field `!` has a line
-- `<process> <until>` for each of the last processes that were granted the lock and have
-- asked nothing since: until when (ms) it is to confirm that. Once this is over the
-- process is frozen or dead, with all its waiters.
-- An attempt begins `n<kind>1:<process>.<number>.<t|u>`; its process listens on the
-- channel `channels` .. process. Scripts that publish set `channels`. `t`: PUBLISH's count of receivers is true. The
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
  local heard = redis.pcall('PUBLISH', channels .. process, kind .. ' ' .. lock .. ' ' .. rest .. attempt)
  if counts ~= 't' then
    return nil
  end
  return heard
end

-- lives: an attempt was heard of lately, and its process confirms what it is granted.
local function lives(seen, attempt, process, now)
  local till = string.match(redis.call('HGET', seen, '!') or '', process .. ' (%d+)\n')
  return (tonumber(redis.call('HGET', seen, attempt)) or 0) > now and not (till and tonumber(till) <= now)
end

-- heard notes that the process of an attempt has asked something.
local function heard(seen, attempt)
  local notes = redis.call('HGET', seen, '!')
  local rest, found = string.gsub(notes or '', process_of(attempt) .. ' %d+\n', '')
  if rest == '' and found > 0 then
    redis.call('HDEL', seen, '!')
  elseif found > 0 then
    redis.call('HSET', seen, '!', rest)
  end
end

-- expect notes until when a process is to confirm a grant, and keeps the last 16 such
-- notes. It comes before `seen` loses the field of the attempt, so that the key exists
-- and has an end.
local function expect(seen, process, till)
  local notes = string.gsub(redis.call('HGET', seen, '!') or '', process .. ' %d+\n', '')
  local _, count = string.gsub(notes, '\n', '')
  if count >= 16 then
    notes = string.gsub(notes, '^.-\n', '')
  end
  redis.call('HSET', seen, '!', string.format('%s%s %.0f\n', notes, process, till))
end

local function drop(queue, seen, attempt)
  redis.call('ZREM', queue, attempt)
  redis.call('HDEL', seen, attempt)
end

-- tell_head tells the first in line that it is, and in how many ms the lock ends by
-- itself. Speed only: who misses it looks once per TTL anyway.
local function tell_head(lock, queue)
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if head then
    tell(lock, head, 'h', string.format('%.0f ', redis.call('PTTL', lock)))
  end
  return head
end

-- tell_other tells a waiter of another process when a grant ends: the process that has
-- it may be frozen, and its own waiters with it. It looks at the last in line and at the
-- first 32, so that the cost of a hand-over does not grow with the line. Speed only: who
-- made the grant checks it, too, unless its process has ended since.
local function tell_other(lock, queue, seen, process, left, now)
  local function try(first, last)
    for _, attempt in ipairs(redis.call('ZRANGE', queue, first, last)) do
      local of = process_of(attempt)
      if of and of ~= process and lives(seen, attempt, of, now) then
        tell(lock, attempt, 'h', string.format('%.0f ', left))
        return true
      end
    end
  end
  return try(-1, -1) or try(1, 31)
end

-- stand takes a place in line for `me`, or keeps it and notes that `me` is alive;
-- answers its score. mode: 'look' and 'try' take none, so the answer may be nil.
local function stand(queue, seen, me, ttl, mode, now)
  local at = redis.call('ZSCORE', queue, me)
  heard(seen, me)
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
  -- The queue lives as long as `seen`, which a note may have kept: no field is left of an
  -- attempt that went with the queue.
  local rest = redis.call('PTTL', seen)
  if rest < lapse then
    rest = lapse
    redis.call('PEXPIRE', seen, lapse)
  end
  if redis.call('PTTL', queue) < rest then
    redis.call('PEXPIRE', queue, rest)
  end
  return at
end

-- near: an attempt looks again when the lock ends by itself. These are the first three in the
-- queue and, as a process may die with the lock and all its waiters, the first attempt of each
-- of the first three processes among the first 32 attempts.
local function near(queue, me)
  local mine, first = process_of(me), true
  local processes, count = {}, 0
  for rank, attempt in ipairs(redis.call('ZRANGE', queue, 0, 31)) do
    if attempt == me then
      return rank <= 3 or first and count < 3
    end
    local of = process_of(attempt)
    first = first and of ~= mine
    if of and not processes[of] then
      processes[of], count = true, count + 1
    end
  end
  return false
end

-- placed is the answer to a waiter: {2, left, place, holder} if it is near or has just served
-- another one, else {3, left, place, holder}. left: ms, by default what is left of the lock.
-- holder: '' if nobody holds it.
local function placed(lock, queue, me, at, holder, left, served)
  local code = (served or near(queue, me)) and 2 or 3
  return {code, left or redis.call('PTTL', lock), string.format('%.0f', tonumber(at)), holder or ''}
end
