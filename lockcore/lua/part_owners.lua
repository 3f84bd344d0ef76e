-- survey looks at every entry of a lock: drops owners whose entries have all ended,
-- and answers the last end of the others (ms; 0: nobody), how many owners they are,
-- and an attempt of one of them. Of the owner of s it takes what s says.
local function survey(lock, now, s)
  local all, last, owners, holder = redis.call('HGETALL', lock), 0, 0, nil
  for i = 1, #all, 2 do
    local owner = string.match(all[i], '^o:(.*)$')
    if owner then
      local _, list = entries_of(all[i + 1], now)
      if s and s.owner == owner then
        list = s.list
      end
      if #list == 0 then
        redis.call('HDEL', lock, all[i])
      else
        owners, holder = owners + 1, list[1][3]
      end
      for _, entry in ipairs(list) do
        last = math.max(last, entry[2])
      end
    end
  end
  return last, owners, holder
end

-- verdict: may an owner have an entry of that mode now? 'in', with its token if that
-- is kept; 'wait', with until when it must if nobody renews (ms); or 'upgrade': it
-- reads, others do too, and two that wait like this would wait for each other.
local function verdict(lock, s, mode, now)
  if s.token then
    if mode == 'r' or s.writes > 0 then
      return 'in', s.token
    end
    local _, owners = survey(lock, now)
    if owners > 1 then
      return 'upgrade'
    end
  elseif (s.ends or 0) < now then
    return 'in'
  elseif mode == 'w' then
    return 'wait', s.ends
  elseif s.writer then
    local _, _, writes = entries_of(redis.call('HGET', lock, 'o:' .. s.writer), now)
    if writes > 0 then
      return 'wait', writes
    end
  end
  return 'in'
end

-- strike writes what an owner has left after an entry was taken out that lasted until
-- then, and ends the lock with the last entry of all that are left. It answers
-- whether that is earlier than it was.
local function strike(lock, s, ended, now)
  if #s.list == 0 and redis.call('HLEN', lock) == (s.writer and 4 or 3) then
    redis.call('DEL', lock) -- nobody else has a field there
    return false
  end
  local before = s.ends
  if ended >= before then
    s.ends = survey(lock, now, s)
    if s.ends == 0 then
      redis.call('DEL', lock)
      return false
    end
  end
  if #s.list > 0 then
    store(lock, s, 0)
    return s.ends < before
  end
  redis.call('HDEL', lock, 'o:' .. s.owner)
  if s.ends < before then
    local ends = string.format('%.0f', s.ends)
    redis.call('HSET', lock, 'end', ends)
    redis.call('PEXPIREAT', lock, ends) -- last: the key may go with it
  end
  return s.ends < before
end

-- enter gives an attempt an entry until then.
local function enter(lock, kind, s, mode, attempt, token, till)
  if not s.ends then
    found(lock, kind, s.owner, token, mode, till, attempt)
    return
  end
  s.token = token
  s.list[#s.list + 1] = {mode, till, attempt}
  store(lock, s, till)
end

-- serve grants the line from its head for as long as the heads may have the lock
-- together. It answers the token if `me` was served, and until when (ms) the head
-- must wait if nobody renews: -1 if there is more to do, for whoever looks next, as
-- one script passes over 1000 at most.
-- Who cannot be reached or has lapsed leaves the line, and joins again if it lives.
-- So does a reader that wants to write and is not the only one: told to look, it
-- learns that. The PUBLISH comes before the writes that depend on it: a script is
-- not rolled back.
-- known: the head that has a timer already; another is told that it is head. So is
-- one that writes when a reader comes to stand behind it: a dead one leaves.
local function serve(lock, fence, keep, queue, seen, kind, me, ttl, now, known)
  local silent, token, refused = {}, nil, false
  local _, asked = parts_of(me or '')
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return token, 0, refused
    end
    local sort, mode, owner = parts_of(head)
    local process = process_of(head)
    local gone = head ~= me and (sort ~= kind or silent[process] or tonumber(redis.call('HGET', seen, head) or 0) <= now)
    if not gone then
      local s = read(lock, kind, owner, now)
      local answer, what = verdict(lock, s, mode, now)
      if answer == 'wait' then
        if head == me or head == known and not (asked == 'r' and mode == 'w')
          or tell(lock, head, 'h', string.format('%.0f ', what - now + 1)) ~= 0 then
          return token, what, refused
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
        enter(lock, kind, s, mode, head, what or next_token(fence, keep), now + GRANT)
      end
    end
    drop(queue, seen, head)
  end
  return token, -1, refused
end
