-- sweep removes entries that have ended, at most 1000 of each mode. It returns whether all were removed, and whether
-- there were any.
local function sweep(lock, s, now)
  local owners, all = {}, true
  for _, from in ipairs({s.reads and 0 or -1, s.writes and WRITES or -1}) do
    local list = from >= 0 and redis.call('ZRANGEBYSCORE', lock, whole(from), '(' .. whole(from + now), 'LIMIT', '0', '1000') or {}
    for _, attempt in ipairs(list) do
      local owner = select(2, parts_of(attempt)) or ''
      owners[owner] = (owners[owner] or 0) + 1
    end
    all = all and #list < 1000
    for i = 1, #list do
      list[#list + 1] = 't:' .. list[i]
      list[#list + 1] = 's:' .. list[i]
    end
    if #list > 0 then
      redis.call('ZREM', lock, unpack(list))
    end
  end
  for owner, gone in pairs(owners) do
    local left = (tonumber(redis.call('ZSCORE', lock, 'n:' .. owner)) or 0) - gone
    if left > COUNT then
      redis.call('ZADD', lock, 'XX', whole(left), 'n:' .. owner)
    else
      redis.call('ZREM', lock, 'n:' .. owner)
    end
  end
  return all, next(owners) ~= nil
end

-- read adds a survey to what look returned for an attempt, without the entries that have ended. s.swept is false if
-- more entries have ended than one script removes. The counts are then too high. A lock without entries is deleted.
-- If the owner writes, nothing has to be swept: its ended entries stay until an attempt leaves.
local function read(lock, s, now, attempt, leaves)
  if not s or not s.there then
    return s
  end
  survey(lock, s)
  if s.writer == s.owner and s.writes >= now and not leaves and (s.mine or now) >= now then
    return s
  end
  local all, some = sweep(lock, s, now)
  if some then
    s = look(lock, s.owner, attempt)
    survey(lock, s)
    s.swept = all
    if s.mine and s.mine < now then
      s.mine, s.token = nil, nil
    end
  end
  if not s.ends then
    redis.call('DEL', lock)
  end
  return s
end

-- first_end returns when the first entry of a Semaphore ends.
local function first_end(lock, now)
  return tonumber(redis.call('ZRANGEBYSCORE', lock, '0', BELOW_WRITES, 'WITHSCORES', 'LIMIT', '0', '1')[2] or now)
end

-- verdict decides whether an owner may have an entry of that mode now. It returns 'in';
-- 'wait', with the time (ms) at which the wait ends if no lease is renewed; or 'upgrade': the
-- owner reads and so do others. Two of these owners would wait for each other.
local function verdict(lock, s, mode, now)
  if not s.swept then
    return 'wait', now
  elseif mode == 'p' then
    if s.count < size then
      return 'in'
    end
    return 'wait', first_end(lock, now)
  elseif s.count > 0 then -- no other owner writes
    if mode == 'w' and not s.writer and redis.call('ZCOUNT', lock, '0', BELOW_COUNT) > s.count then
      return 'upgrade'
    end
  elseif s.ends and mode == 'w' then
    return 'wait', s.ends
  elseif s.writes then
    return 'wait', s.writes
  end
  return 'in'
end

-- remove deletes the attempt's entry, and lets the lock expire with the last of the other entries. It returns whether
-- the lock now expires earlier.
local function remove(lock, s, attempt)
  local ended, before = s.mine, s.ends
  s.mine, s.count = nil, s.count - 1
  if s.count > 0 then
    redis.call('ZREM', lock, attempt, 't:' .. attempt, 's:' .. attempt)
    redis.call('ZADD', lock, 'XX', whole(COUNT + s.count), 'n:' .. s.owner)
  else
    redis.call('ZREM', lock, attempt, 't:' .. attempt, 's:' .. attempt, 'n:' .. s.owner)
  end
  if ended < before then
    return false
  end
  survey(lock, s)
  if not s.ends then
    redis.call('DEL', lock)
    return false
  end
  if s.ends < before then
    redis.call('PEXPIREAT', lock, whole(s.ends)) -- last: the key may go with it
  end
  return s.ends < before
end

-- enter adds an entry for an attempt. As in extend, the TTL is set first. If the key has expired meanwhile, the
-- write would create it without a TTL: then the kind is a new member, and the key is deleted. A waiter has an entry
-- only if that had ended, was one of too many to remove, and the clock was then set back.
local function enter(lock, s, mode, attempt, token, till)
  if not s.ends then
    create(lock, s.owner, token, mode, till, attempt)
    return
  end
  redis.call('PEXPIREAT', lock, whole(math.max(s.ends, till)))
  local count = s.mine and s.count or s.count + 1
  if redis.call('ZADD', lock, FROM_COUNT, tag, whole(COUNT + count), 'n:' .. s.owner, '-' .. token, 't:' .. attempt,
    score_of(mode, till), attempt, free_slot(lock, mode, attempt)) >= 4 then
    redis.call('DEL', lock)
  end
end

-- serve grants the lock to the head of the queue, and to the waiters behind it that may hold it together with the
-- head. It returns four values:
--   token    if `me` was served
--   stop     the time (ms) at which the head's wait ends if no lease is renewed. It is 0 if the queue is empty, and -1
--            if there is more to do, as one call skips at most 1000 waiters
--   refused  the code that refuses `me`, or nil
--   time     the longest time (ms) for which another waiter was granted the lock, or nil
-- A waiter that has lapsed is removed, and joins again if it is alive. All waiters of a process that did not confirm a
-- grant or answer a call are removed, too, and so is a reader that wants to write beside others: it is notified to
-- check, and is then refused. If the head waits for a mutex, it is notified to check while the lock is free, and
-- otherwise removed. known: the head that already has a timer. Another head is notified.
local function serve(lock, fence, keep, queue, seen, me, ttl, now, known)
  local token, refused, granted, time
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, '0', '0')[1]
    if not head then
      return token, 0, refused, time
    end
    local mode, owner = parts_of(head)
    local process = process_of(head)
    local gone = head ~= me and (not process or not alive(seen, head, process, now))
    if not gone and not mode and redis.call('EXISTS', lock) == 0 then
      yield(lock, queue, seen, head, process, me, now)
      return nil, now, 7
    end
    if not gone and mode then
      local s = read(lock, look(lock, owner, head), now, head)
      local answer, what = verdict(lock, s, mode, now)
      if answer == 'wait' then
        if granted then
          notify_other(lock, queue, seen, granted, process, math.max(what, now + time) - now + 1, now)
        end
        if head ~= me and head ~= known then
          notify(lock, process, head, 'h', whole(what - now + 1) .. ' ')
        end
        return token, what, refused, time
      elseif head == me and answer == 'in' then
        token = next_token(fence, keep)
        enter(lock, s, mode, me, token, now + tonumber(ttl))
      elseif head == me then
        refused = 8
      else
        notify(lock, process, head, 'g', '')
        if answer == 'in' then
          local lasts = note_grant(lock, queue, seen, process, me, now)
          granted, time = process, lasts
          enter(lock, s, mode, head, next_token(fence, keep), now + lasts)
        end
      end
    end
    drop(queue, seen, head)
  end
  return token, -1, refused, time
end
