-- survey looks at every entry of a lock: drops owners whose entries have all ended,
-- and answers the last end of the others (ms; 0: nobody), how many owners they are,
-- and an attempt of one of them.
local function survey(lock, now)
  local all, last, owners, holder = redis.call('HGETALL', lock), 0, 0, nil
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'o:' then
      local token, list = entries_of(all[i + 1], now)
      if token then
        owners, holder = owners + 1, list[1][3]
        for _, entry in ipairs(list) do
          last = math.max(last, entry[2])
        end
      else
        redis.call('HDEL', lock, all[i])
      end
    end
  end
  return last, owners, holder
end

-- verdict: may an attempt have an entry now? 'in' (its owner's token, or nil for a
-- new one; its owner's entries), 'wait', or 'upgrade': its owner reads, others do
-- too, and two that wait like this would wait for each other.
local function verdict(lock, mode, owner, now)
  local got = redis.call('HMGET', lock, 'writer', 'o:' .. owner)
  local token, list, writes = entries_of(got[2], now)
  if token then
    if mode == 'r' or writes then
      return 'in', token, list
    end
    local _, owners = survey(lock, now)
    if owners > 1 then
      return 'upgrade'
    end
    return 'in', nil, list
  end
  if mode == 'w' then
    if redis.call('EXISTS', lock) == 1 then
      return 'wait'
    end
    return 'in', nil, list
  end
  if got[1] then
    local _, _, writing = entries_of(redis.call('HGET', lock, 'o:' .. got[1]), now)
    if writing then
      return 'wait'
    end
  end
  return 'in', nil, list
end

-- serve grants the line from its head for as long as the heads may have the lock
-- together, and answers the token if `me` was served. Who cannot be reached or has
-- lapsed leaves the line, and joins again if it lives. Not more than 1000 in one
-- script; who looks next goes on. The PUBLISH comes before the writes that depend
-- on it: a script is not rolled back.
local function serve(lock, fence, queue, seen, kind, me, ttl, now)
  local silent, token = {}, nil
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local head = first
  for _ = 1, 1000 do
    if not head then
      return token
    end
    local sort, mode, owner = parts_of(head)
    local process = process_of(head)
    local gone = head ~= me and (sort ~= kind or silent[process] or tonumber(redis.call('HGET', seen, head) or 0) <= now)
    if not gone then
      local answer, kept, list = verdict(lock, mode, owner, now)
      if answer ~= 'in' then
        break -- a writer waits, or is told at its next look why it cannot
      end
      local till = now + tonumber(ttl)
      if head ~= me then
        gone = tell(lock, head, 'g', '') == 0
        silent[process] = gone
        till = now + GRANT
      end
      if not gone then
        local mine = kept or next_token(fence)
        add(lock, kind, mode, owner, head, mine, list, till, now)
        if head == me then
          token = mine
        end
      end
    end
    drop(queue, seen, head)
    head = redis.call('ZRANGE', queue, 0, 0)[1]
  end
  if head and head ~= first and head ~= me then
    tell_head(lock, queue)
  end
  return token
end
