-- A lock with owners, an RWMutex or a ReentrantMutex, or a Semaphore. It is one sorted set, `lock`, so that no part
-- of it can be lost without the rest. Each step costs the same for one entry as for thousands. The members are:
--
--   <attempt>   the entry of an attempt. Its score is its end (ms, server clock), plus
--               WRITES if it writes. An entry ends without a request.
--   n:<owner>   COUNT plus the number of the owner's entries, including ended ones that
--               were not swept yet
--   t:<attempt> the token of the entry, negative
--   ns1         COUNT: the kind of lock; np1 for a Semaphore
--   s:<attempt> of a Semaphore: SLOT plus the number of the entry's slot
--
-- Only one owner writes at a time, and all entries are then its own. The entries of a Semaphore have the mode p
-- and one owner, `-`. There are at most `size` of them. A slot has one entry at a time. The key expires with
-- the last entry. That time is read from the scores. PTTL and TIME read the clock one after
-- the other, so their sum would be too early.
--
-- An attempt is `<tag>:<process>.<number>.<mode w|r|p>/<owner> <identity>`. All
-- scores are integers below 2^53, which doubles represent exactly. A script sets `tag`, the kind of its
-- attempt, and for a Semaphore `size`.
local WRITES, COUNT, SLOT = 2251799813685248, 4503599627370496, 6755399441055744 -- 2^51, 2^52, 2^52 + 2^51
local tag, size = 'ns1', nil

-- How long (ms) the size is kept after a grant or a renewal.
local WEEK = 604800000

-- size_of returns the size of a Semaphore in the reply to GET, or nil or false if there is none or it is damaged.
local function size_of(reply)
  return type(reply) == 'string' and string.find(reply, '^[1-9]%d?%d?%d?$') and tonumber(reply)
end

-- parts_of returns the mode and the owner; nil for an attempt of another kind of lock.
local function parts_of(attempt)
  return string.match(attempt, '^' .. tag .. ':%w+%.%w+%.([wrp])/([^ ]+) ')
end

local function whole(number)
  return string.format('%.0f', number)
end

-- end_of is when an entry ends that has that score.
local function end_of(score)
  score = tonumber(score)
  return score >= WRITES and score - WRITES or score
end

local function score_of(mode, till)
  return whole(mode == 'w' and WRITES + till or till)
end

-- last returns the entry that ends last of those with scores in a range, and its end.
local function last(lock, from, to)
  local got = redis.call('ZREVRANGEBYSCORE', lock, '(' .. whole(to), whole(from), 'WITHSCORES', 'LIMIT', 0, 1)
  return got[1], got[2] and end_of(got[2])
end

-- look returns the state of a lock for an owner and one of its attempts, including ended
-- entries: {owner, count, mine, mode and token (the end, the mode and the token of the
-- attempt's entry), there (the lock exists)}. nil: the key is not of this kind.
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
    s.mode = tonumber(got[3]) >= WRITES and 'w' or 'r' -- it may have been downgraded
  end
  return s
end

-- survey adds the end of the last entry (s.ends; nil: there is none), of the last one that
-- writes (s.writes) and that reads (s.reads), and the owner that writes (s.writer).
local function survey(lock, s)
  local attempt
  attempt, s.writes = last(lock, WRITES, COUNT)
  s.writer = attempt and select(2, parts_of(attempt))
  attempt, s.reads = last(lock, 0, WRITES)
  s.ends = s.writes or s.reads
  if s.reads and s.reads > s.ends then
    s.ends = s.reads
  end
end

-- free_slot returns the lowest free slot as a score, and the member of an entry that has it; nothing if there are
-- no slots. All slots below `low` are taken. Often there is no gap, which the first count shows.
local function free_slot(lock, mode, attempt)
  if mode == 'p' then
    local low = redis.call('ZCOUNT', lock, whole(SLOT), '+inf')
    local function taken(below)
      return redis.call('ZCOUNT', lock, whole(SLOT), '(' .. whole(SLOT + below)) == below
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

-- create writes the first entry of a free lock. A script is not rolled back, and no key may
-- stay without a TTL if an ACL forbids PEXPIREAT.
local function create(lock, owner, token, mode, till, attempt)
  redis.call('ZADD', lock, whole(COUNT), tag, whole(COUNT + 1), 'n:' .. owner, '-' .. token, 't:' .. attempt,
    score_of(mode, till), attempt, free_slot(lock, mode, attempt))
  local done = redis.pcall('PEXPIREAT', lock, whole(till))
  if type(done) == 'table' then
    redis.call('DEL', lock)
    error(done.err)
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
