-- sweep drops entries that have ended, 1000 of each sort at most, and answers whether
-- that were all, and whether there were any. An owner that has none left goes with its
-- token.
local function sweep(lock, s, now)
  local owners, all = {}, true
  for _, from in ipairs({s.reads and 0 or -1, s.writes and WRITES or -1}) do
    local list = from >= 0 and redis.call('ZRANGEBYSCORE', lock, whole(from), '(' .. whole(from + now), 'LIMIT', 0, 1000) or {}
    for _, attempt in ipairs(list) do
      local owner = select(3, parts_of(attempt)) or ''
      owners[owner] = (owners[owner] or 0) + 1
    end
    if #list > 0 then
      redis.call('ZREM', lock, unpack(list))
    end
    all = all and #list < 1000
  end
  for owner, gone in pairs(owners) do
    local left = (tonumber(redis.call('ZSCORE', lock, 'n:' .. owner)) or 0) - gone
    if left > COUNT then
      redis.call('ZADD', lock, 'XX', whole(left), 'n:' .. owner)
    else
      redis.call('ZREM', lock, 'n:' .. owner, 't:' .. owner)
    end
  end
  return all, next(owners) ~= nil
end

-- read is look and survey without the entries that have ended. s.swept is false if there
-- are more of those than one script drops: then counts say too much. A lock that nobody
-- has an entry of is deleted. Where the owner writes there is nothing to find out: its
-- ended entries stay until somebody leaves.
local function read(lock, kind, owner, now, attempt, leaves)
  local s = look(lock, kind, owner, attempt)
  if not s or not s.there then
    return s
  end
  survey(lock, s)
  if s.writer == owner and s.writes >= now and not leaves and (s.mine or now) >= now then
    return s
  end
  local all, some = sweep(lock, s, now)
  if some then
    s = look(lock, kind, owner, attempt)
    survey(lock, s)
    s.swept = all
    if s.ends and s.ends < now then -- there are more
      s.ends, s.writes, s.reads = now, nil, nil
    end
    if s.mine and s.mine < now then
      s.mine = nil
    end
  end
  if not s.ends then
    redis.call('DEL', lock)
    s.count, s.token, s.mine, s.there = 0, nil, nil, nil
  end
  return s
end

-- verdict: may an owner have an entry of that mode now? 'in', with its token if that
-- is kept; 'wait', with until when it must if nobody renews (ms); or 'upgrade': it
-- reads, others do too, and two that wait like this would wait for each other.
local function verdict(lock, s, mode, now)
  if not s.swept then
    return 'wait', now
  elseif s.count > 0 then
    if mode == 'r' or s.writer then -- nobody else writes while it is inside
      return 'in', s.token
    elseif redis.call('ZCOUNT', lock, 0, '(' .. whole(COUNT)) > s.count then
      return 'upgrade'
    end
  elseif s.ends and mode == 'w' then
    return 'wait', s.ends
  elseif s.writes then
    return 'wait', s.writes
  end
  return 'in'
end

-- elsewhere reports whether an attempt of another process has an entry of that owner. It
-- looks at 10000 entries of each sort at most, and is not asked often.
local function elsewhere(lock, owner, process, now)
  for from, to in pairs({[now] = WRITES, [WRITES + now] = COUNT}) do
    for skip = 0, 10000, 1000 do
      local list = redis.call('ZRANGEBYSCORE', lock, whole(from), '(' .. whole(to), 'LIMIT', skip, 1000)
      for _, attempt in ipairs(list) do
        if select(3, parts_of(attempt)) == owner and process_of(attempt) ~= process then
          return true
        end
      end
      if #list < 1000 then
        break
      elseif skip == 10000 then
        return true
      end
    end
  end
  return false
end

-- strike takes the entry out that the attempt has, and ends the lock with the last of
-- those that are left. It answers whether that is earlier than it was.
local function strike(lock, s, attempt)
  local ended, before = s.mine, s.ends
  s.mine, s.count = nil, s.count - 1
  if s.count > 0 then
    redis.call('ZREM', lock, attempt)
    redis.call('ZADD', lock, 'XX', whole(COUNT + s.count), 'n:' .. s.owner)
  else
    redis.call('ZREM', lock, attempt, 'n:' .. s.owner, 't:' .. s.owner)
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

-- enter gives an attempt an entry until then. As in extend the end comes first; if the
-- key went with it, the kind is new in what is written, and all of that goes again.
local function enter(lock, kind, s, mode, attempt, token, till)
  if not s.ends then
    found(lock, kind, s.owner, token, mode, till, attempt)
    return
  end
  redis.call('PEXPIREAT', lock, whole(math.max(s.ends, till)))
  local count = s.mine and s.count or s.count + 1
  if redis.call('ZADD', lock, whole(COUNT), kind, whole(COUNT + count), 'n:' .. s.owner, '-' .. token, 't:' .. s.owner,
    score_of(mode, till), attempt) == 4 then
    redis.call('DEL', lock)
  end
end

-- serve grants the line from its head for as long as the heads may have the lock
-- together. It answers the token if `me` was served, and until when (ms) the head
-- must wait if nobody renews: -1 if there is more to do, for whoever looks next, as
-- one script passes over 1000 at most.
-- Who cannot be reached or has lapsed leaves the line, and joins again if it lives; so
-- do all waiters of a process that did not confirm a grant. So does a reader that wants
-- to write and is not the only one: told to look, it learns that. The PUBLISH comes
-- before the writes that depend on it: a script is not rolled back.
-- known: the head that has a timer already; another is told that it is head. So is
-- one that writes when a reader comes to stand behind it: a dead one leaves.
local function serve(lock, fence, keep, queue, seen, kind, me, ttl, now, known)
  local silent, token, refused, granted = {}, nil, false, nil
  local _, asked = parts_of(me or '')
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return token, 0, refused, granted
    end
    local sort, mode, owner = parts_of(head)
    local process = process_of(head)
    local gone = head ~= me and (sort ~= kind or silent[process] or not lives(seen, head, process, now))
    if not gone then
      local s = read(lock, kind, owner, now, head)
      local answer, what = verdict(lock, s, mode, now)
      if answer == 'wait' then
        if granted and process == granted then
          tell_other(lock, queue, seen, process, what - now + 1, now)
        end
        if head == me or head == known and not (asked == 'r' and mode == 'w')
          or tell(lock, head, 'h', whole(what - now + 1) .. ' ') ~= 0 then
          return token, what, refused, granted
        end
        silent[process] = true
      elseif head == me and answer == 'in' then
        token = what or next_token(fence, keep)
        enter(lock, kind, s, mode, me, token, now + tonumber(ttl))
      elseif head == me then
        refused = true
      elseif tell(lock, head, 'g', '') == 0 then
        silent[process] = true
      elseif answer == 'in' then
        expect(seen, process, now + GRANT)
        granted = process
        enter(lock, kind, s, mode, head, what or next_token(fence, keep), now + GRANT)
      end
    end
    drop(queue, seen, head)
  end
  return token, -1, refused, granted
end
