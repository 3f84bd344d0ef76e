-- The place of the caller in the queue. It needs part_queue.lua and part_note.lua.

-- enqueue adds `me` to the queue, or keeps its place, and extends the time for which it counts as alive. It
-- returns the score as a text. With mode 'look' and 'try' nothing is added, and the result is nil if `me` is not in the
-- queue. first: the head; false or nil: there is no queue. remaining: see mutex_acquire.
local function enqueue(queue, seen, me, ttl, mode, now, first, remaining)
  clear_note(seen, me)
  local at, new
  if mode ~= 'look' and mode ~= 'try' then
    at = tonumber(mode)
    if not at then
      -- Behind the last one, even if the clock was set back.
      local last = first and redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
      at = last and math.max(now, tonumber(last) + 1) or now
    end
    at = string.format('%.0f', at)
    new = redis.call('ZADD', queue, 'NX', at, me) == 1
  end
  if not new then
    local score = first and redis.call('ZSCORE', queue, me)
    if not score then
      return nil
    end
    at = string.format('%.0f', tonumber(score))
  end
  -- How long (ms) a waiter keeps its place without a request: three times the interval at which it checks.
  local lapse = math.ceil(math.max(tonumber(ttl), 1000) * 3.3)
  redis.call('HSET', seen, me, string.format('%.0f', now + (remaining and math.min(lapse, remaining) or lapse)))
  -- Both keys expire together, so `seen` has no fields of attempts that expired with the
  -- queue. They last twice as long as needed, so that few requests have to extend that.
  local left = redis.call('PTTL', seen)
  if left < lapse or not first then
    left = math.max(left, 2 * lapse)
    redis.call('PEXPIRE', seen, left)
    redis.call('PEXPIRE', queue, left)
  end
  return at
end

-- near reports whether an attempt checks again when the lock expires. These are the first
-- three in the queue, and the first one of each process among the first 32, as the process
-- of the holder and others may be dead or frozen, with all their waiters.
local function near(queue, me)
  local rank = redis.call('ZRANK', queue, me)
  if rank < 3 or rank > 31 then
    return rank < 3
  end
  local mine = process_of(me) .. '.'
  for _, attempt in ipairs(redis.call('ZRANGE', queue, '0', rank - 1)) do
    if string.find(attempt, mine, 5, true) == 5 then -- this takes less time than process_of
      return false
    end
  end
  return true
end

-- placed returns the reply to a waiter: {2, left, place, holder} if it is near or has just served another waiter,
-- otherwise {3, left, place, holder}. left: ms, by default the TTL of the lock. holder: '' if the lock is free.
local function placed(lock, queue, me, at, holder, left, served)
  local code = (served or near(queue, me)) and 2 or 3
  return {code, left or redis.call('PTTL', lock), at, holder or ''}
end
