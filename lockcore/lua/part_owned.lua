-- A lock with owners: reentrant (kind `nx1`) or read-write (`ns1`). It is one sorted
-- set, `lock`, so that nothing of it can be lost without the rest, and each step costs
-- the same for one entry as for thousands:
--
--   <attempt>   an entry, one attempt's. Its score is its end, ms on this server's
--               clock; of one that writes WRITES more. An entry ends by itself.
--   n:<owner>   COUNT and how many entries the owner has, ended ones that were not
--               swept yet included
--   t:<owner>   the owner's token, negative
--   nx1, ns1    COUNT: the kind
--
-- Only one owner writes at a time, so all entries are its then. The key ends with the
-- last entry. That is read from the scores, as PTTL and TIME read the clock one after
-- the other: a sum of both is short by what lies between.
--
-- An attempt is `<kind>:<process>.<number>.<t|u>.<mode w|r>/<owner> <identity>`. All
-- scores are whole and below 2^53, so doubles hold them.
local WRITES, COUNT = 2251799813685248, 4503599627370496 -- 2^51, 2^52

local function parts_of(attempt)
  return string.match(attempt, '^(n%a1):%w+%.%w+%.%a%.([wr])/([^ ]+) ')
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

-- last is the entry that ends last of those from a score up to another.
local function last(lock, from, to)
  local got = redis.call('ZREVRANGEBYSCORE', lock, '(' .. whole(to), whole(from), 'WITHSCORES', 'LIMIT', 0, 1)
  return got[1], got[2] and end_of(got[2])
end

-- look tells how a lock stands for an owner and an attempt of its, ended entries
-- included: {owner, count, token, mine and mode (until when and for what the attempt
-- has an entry), there (the lock exists)}. nil: the key is not of this kind.
local function look(lock, kind, owner, attempt)
  local got = redis.pcall('ZMSCORE', lock, kind, 'n:' .. owner, 't:' .. owner, attempt)
  if got.err and not string.find(got.err, 'WRONGTYPE', 1, true) then
    error(got.err)
  elseif not got[1] then -- an error has no items
    if redis.call('EXISTS', lock) == 1 then
      return nil
    end
    return {owner = owner, count = 0, swept = true}
  end
  local s = {owner = owner, count = got[2] and tonumber(got[2]) - COUNT or 0, swept = true, there = true}
  s.token = got[3] and whole(-tonumber(got[3]))
  if got[4] then
    s.mine = end_of(got[4])
    s.mode = tonumber(got[4]) >= WRITES and 'w' or 'r' -- it may have been downgraded
  end
  return s
end

-- survey adds when the last entry ends (s.ends; nil: nobody has one), the last one that
-- writes (s.writes) and that reads (s.reads), and who writes (s.writer).
local function survey(lock, s)
  local attempt
  attempt, s.writes = last(lock, WRITES, COUNT)
  s.writer = attempt and select(3, parts_of(attempt))
  attempt, s.reads = last(lock, 0, WRITES)
  s.ends = s.writes or s.reads
  if s.reads and s.reads > s.ends then
    s.ends = s.reads
  end
end

-- found writes the first entry of a lock that is free. No key must stay without an
-- end, although a script is not rolled back: an ACL may forbid PEXPIREAT.
local function found(lock, kind, owner, token, mode, till, attempt)
  redis.call('ZADD', lock, whole(COUNT), kind, whole(COUNT + 1), 'n:' .. owner, '-' .. token, 't:' .. owner,
    score_of(mode, till), attempt)
  local done = redis.pcall('PEXPIREAT', lock, whole(till))
  if type(done) == 'table' then
    redis.call('DEL', lock)
    error(done.err)
  end
end

-- extend moves the end of an entry that the attempt has. The key's end comes first: that
-- works while the server is out of memory, and what a script writes after it does, too.
-- If the server stood still since it told the time, that end may be over, and the key
-- gone with it: XX brings nothing back. An entry ends sooner than before where it was
-- granted for longer than its TTL, or where the clock was set back.
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
