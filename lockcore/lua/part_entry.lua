-- A lock with owners, an RWMutex or a ReentrantMutex, or a Semaphore. It is one sorted set, `lock`, so that no part
-- of it can be lost without the rest. Each step costs the same for one entry as for thousands. The members and
-- their scores are:
--
--   <attempt>   the entry of an attempt. Its score is its end (ms, server clock), plus
--               WRITES if it writes. An entry ends without a request.
--   n:<owner>   COUNT plus the number of the owner's entries. An entry that has ended counts until
--               it is removed
--   t:<attempt> minus the token of the entry
--   ns1         COUNT. The member tells the kind of lock: ns1, or np1 for a Semaphore
--   s:<attempt> of a Semaphore: SLOT plus the number of the entry's slot
--
-- Only one owner writes at a time, and all entries are then its own. The entries of a Semaphore have the mode p
-- and one owner, `-`. There are at most `size` of them. A slot has one entry at a time. The key expires with
-- the last entry. A script reads that time from the scores: PTTL and TIME read the clock one
-- after the other, so their sum would be too early.
--
-- An attempt is `<tag>:<process>.<number>.<mode w|r|p>/<owner> <identity>`. All scores are integers below 2^53, which
-- doubles represent exactly. A script sets `tag`, the kind of its attempt, and for a Semaphore `size`.
local WRITES, COUNT, SLOT = 2251799813685248, 4503599627370496, 6755399441055744 -- 2^51, 2^52, 2^52 + 2^51
local tag, size = 'ns1', nil

-- The same numbers as texts for commands: Lua takes long to format a number.
local FROM_WRITES, BELOW_WRITES = '2251799813685248', '(2251799813685248'
local FROM_COUNT, BELOW_COUNT, ONE = '4503599627370496', '(4503599627370496', '4503599627370497'
local FROM_SLOT = '6755399441055744'

-- How long (ms) the size is kept after a grant or a renewal.
local WEEK = '604800000'

-- size_of returns the size of a Semaphore in the reply to GET; nil or false without a valid size.
local function size_of(reply)
  return type(reply) == 'string' and string.find(reply, '^[1-9]%d?%d?%d?$') and tonumber(reply)
end

-- parts_of returns the mode and the owner, or nil for an attempt of another kind of lock.
local function parts_of(attempt)
  return string.match(attempt, '^' .. tag .. ':%w+%.%w+%.([wrp])/([^ ]+) ')
end

local function whole(number)
  return string.format('%.0f', number)
end

-- end_of returns the end of an entry with a score.
local function end_of(score)
  score = tonumber(score)
  return score >= WRITES and score - WRITES or score
end

local function score_of(mode, till)
  return whole(mode == 'w' and WRITES + till or till)
end

-- has_one reports whether a lock has only one entry. mode is the mode of that entry.
local function has_one(lock, mode)
  return redis.call('ZCARD', lock) == (mode == 'p' and 5 or 4)
end

-- create writes the first entry of a free lock. A script is not rolled back, and no key may
-- stay without a TTL if an ACL forbids PEXPIREAT.
local function create(lock, owner, token, mode, till, attempt)
  redis.call('ZADD', lock, FROM_COUNT, tag, ONE, 'n:' .. owner, '-' .. token, 't:' .. attempt,
    score_of(mode, till), attempt, unpack(mode == 'p' and {FROM_SLOT, 's:' .. attempt} or {}))
  local done = redis.pcall('PEXPIREAT', lock, whole(till))
  if type(done) == 'table' then
    redis.call('DEL', lock)
    error(done.err)
  end
end
