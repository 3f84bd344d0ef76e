-- The line of a name: `queue` orders the attempts, `seen` says until when (ms on
-- this server's clock) each one is taken to be alive.
-- An attempt is `nl1:<process>.<number>.<t|u>/<identity>`; its process listens on
-- the channel `<prefix>:ch:<process>`. `t`: PUBLISH's count of receivers is true.

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
  return string.match(attempt, '^nl1:(%w+)%.%w+%.(%a)/')
end

-- tell publishes to the process of an attempt; answers the receivers, or nil if
-- nobody can know. pcall: an ACL may forbid PUBLISH, and that must stop nothing.
local function tell(lock, attempt, kind, rest)
  local process, counts = process_of(attempt)
  if not process then
    return 0
  end
  local prefix, name = string.match(lock, '^(.*):{(.*)}:lock$')
  local heard = redis.pcall('PUBLISH', prefix .. ':ch:' .. process,
    kind .. ' ' .. name .. ' ' .. rest .. attempt)
  if type(heard) == 'table' or counts ~= 't' then
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

-- advance: only while the lock is free. Serves the line from its head; answers
-- a token if `me` was served, nil if another was, or nobody is left. Who cannot
-- be reached or has lapsed leaves the line, and joins again if it lives. Not
-- more than 1000 in one script, some milliseconds; who looks next goes on.
-- The PUBLISH comes before the writes that depend on it: a script is not rolled
-- back.
local function advance(lock, fence, queue, seen, me, ttl, now)
  local silent = {}
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return nil
    end
    if head == me then
      drop(queue, seen, me)
      local token = next_token(fence)
      redis.call('SET', lock, me, 'PX', ttl)
      tell_head(lock, queue)
      return token
    end
    local process = process_of(head)
    if process and not silent[process] and tonumber(redis.call('HGET', seen, head) or 0) > now then
      if tell(lock, head, 'g', '') ~= 0 then
        drop(queue, seen, head)
        next_token(fence)
        redis.call('SET', lock, head, 'PX', GRANT)
        tell_head(lock, queue)
        return nil
      end
      silent[process] = true
    end
    drop(queue, seen, head)
  end
  return nil
end
