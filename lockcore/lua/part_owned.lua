-- The state of a lock with owners. It needs part_entry.lua, which describes the key.

-- last returns the entry that ends last, among the entries with scores in a range, and its end.
local function last(lock, from, below)
  local got = redis.call('ZREVRANGEBYSCORE', lock, below, from, 'WITHSCORES', 'LIMIT', '0', '1')
  return got[1], got[2] and end_of(got[2])
end

-- look returns the state of a lock for an owner and one of its attempts, nil if the key is of another kind. The state
-- has the fields owner, count (the owner's entries, including ended ones), there (the lock exists), and of the
-- attempt's entry: mine (its end), mode and token.
local function look(lock, owner, attempt)
  local got = redis.pcall('ZMSCORE', lock, tag, 'n:' .. owner, attempt, 't:' .. attempt)
  if got.err and not string.find(got.err, 'WRONGTYPE', 1, true) then
    error(got.err)
  elseif not got[1] then -- an error has no items
    if redis.call('EXISTS', lock) == 1 then
      return nil
    end
    return {owner = owner, count = 0, swept = true}
  end
  local s = {owner = owner, count = got[2] and tonumber(got[2]) - COUNT or 0, swept = true, there = true}
  if got[3] then
    s.mine, s.token = end_of(got[3]), whole(-tonumber(got[4]))
    s.mode = tonumber(got[3]) >= WRITES and 'w' or 'r' -- after a downgrade, not the mode in the attempt
  end
  return s
end

-- survey adds the end of the last entry (s.ends), of the last entry that writes (s.writes) and that reads
-- (s.reads), and the owner that writes (s.writer). They are nil without an entry.
local function survey(lock, s)
  local attempt
  attempt, s.writes = last(lock, FROM_WRITES, BELOW_COUNT)
  s.writer = attempt and select(2, parts_of(attempt))
  attempt, s.reads = last(lock, '0', BELOW_WRITES)
  s.ends = s.writes or s.reads
  if s.reads and s.reads > s.ends then
    s.ends = s.reads
  end
end

-- free_slot returns the lowest free slot as a score, and the member of an entry that has it; nothing if there are
-- no slots. Often, the n entries have the slots below n, which the first count shows. Otherwise, a binary
-- search finds the greatest `low` below which all slots are taken.
local function free_slot(lock, mode, attempt)
  if mode == 'p' then
    local low = redis.call('ZCOUNT', lock, FROM_SLOT, '+inf')
    local function taken(below)
      return redis.call('ZCOUNT', lock, FROM_SLOT, '(' .. whole(SLOT + below)) == below
    end
    if not taken(low) then
      low = 0
      for bit = 9, 0, -1 do
        low = taken(low + 2 ^ bit) and low + 2 ^ bit or low
      end
    end
    return whole(SLOT + low), 's:' .. attempt
  end
end

-- extend moves the end of the attempt's entry. The TTL of the key is set first: that works while the server is
-- out of memory, and so do the writes after it. If the server paused since it read the clock, the key may have
-- expired. XX then writes nothing. An entry ends earlier than before if it was granted for longer than its TTL,
-- or if the clock was set back.
local function extend(lock, s, attempt, till)
  local before = s.ends
  redis.call('PEXPIREAT', lock, whole(math.max(before, till)))
  redis.call('ZADD', lock, 'XX', score_of(s.mode, till), attempt)
  if till < s.mine and s.mine >= before then
    survey(lock, s)
    if s.ends then
      redis.call('PEXPIREAT', lock, whole(s.ends))
    end
  end
end
