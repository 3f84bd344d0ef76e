-- A set of partitions, `parts`, is one sorted set, so that the server loses all of it or nothing. The scores:
--
--   <partition>  session of the owner, 0 for a free partition
--   t<partition> minus the newest fencing token of the partition; absent if it never had an owner
--   m<attempt>   minus the session of a replica's attempt, which is secret
--   e<session>   ms, server clock, end of the session's lease
--   c<session>   LIVE + number of partitions of a live session
--   d<session>   LEAVING + number of partitions of a leaving session, which gives back all
--   v<session>   minus the version of the session's partitions: the token of their last change; absent before a change
--
-- A session is the fencing token of its join, and has 15 or 16 digits. The ranges of the scores do not overlap
-- while the clock of the server is between 1974 and 5138. There are at most 4096 partitions.
local LIVE, LEAVING, ENDS, ENDS_MAX, SESSIONS = 10000, 20000, 100000, 99999999999999, 100000000000000

local function whole(number)
  return string.format('%.0f', number)
end

local function score(parts, member)
  return tonumber(redis.call('ZSCORE', parts, member))
end

local function count(parts, least, most)
  return redis.call('ZCOUNT', parts, least, most)
end

-- between returns members and their scores in a list.
local function between(parts, least, most)
  return redis.call('ZRANGEBYSCORE', parts, least, most, 'WITHSCORES')
end

-- end_session ends a session and frees its partitions. The first write needs no memory.
local function end_session(parts, session)
  local attempt = redis.call('ZRANGEBYSCORE', parts, '-' .. session, '-' .. session)[1]
  redis.call('ZREM', parts, attempt, 'e' .. session, 'c' .. session, 'd' .. session, 'v' .. session)
  for _, p in ipairs(redis.call('ZRANGEBYSCORE', parts, session, session)) do
    redis.call('ZADD', parts, 0, p)
  end
end

-- expire ends the sessions whose leases are over, and reports whether there was one.
local function expire(parts, now)
  local over = redis.call('ZRANGEBYSCORE', parts, ENDS, '(' .. whole(now))
  for _, e in ipairs(over) do
    end_session(parts, string.sub(e, 2))
  end
  return #over > 0
end

-- next_end returns the time in ms until the first end of the lease of another session, -1 if there is none.
local function next_end(parts, session, now)
  local ends = redis.call('ZRANGEBYSCORE', parts, ENDS, ENDS_MAX, 'WITHSCORES', 'LIMIT', 0, 2)
  local i = ends[1] == 'e' .. session and 3 or 1
  return ends[i] and ends[i + 1] - now or -1
end

-- balance returns the balance of the live sessions:
--   least, most  bounds of a share
--   free         partitions without an owner
--   low, lacking sessions with less than least, and the partitions that they lack
--   high, excess sessions with more than most, and the partitions above most
local function balance(parts, n)
  local b = {live = count(parts, LIVE, LEAVING - 1), free = count(parts, 0, 0), lacking = 0, low = {}, excess = 0, high = {}}
  b.least, b.most = math.floor(n / b.live), math.ceil(n / b.live)
  local low = between(parts, LIVE, LIVE + b.least - 1)
  for i = 1, #low, 2 do
    b.lacking = b.lacking + b.least - (low[i + 1] - LIVE)
    table.insert(b.low, low[i])
  end
  local high = between(parts, LIVE + b.most + 1, LEAVING - 1)
  for i = 1, #high, 2 do
    b.excess = b.excess + high[i + 1] - LIVE - b.most
    table.insert(b.high, high[i])
  end
  return b
end

-- quota returns how many free partitions a live session takes: up to least, and one more
-- if enough remain for the sessions with less.
local function quota(b, owned)
  local lacks = math.max(0, b.least - owned)
  local take = math.min(b.free, lacks)
  if owned < b.most and b.free - take > b.lacking - lacks then
    take = take + 1
  end
  return take
end

-- donors returns the members c<session> of those sessions with b.most partitions that must give one back. There are
-- some only if other sessions lack more partitions than are free, in excess, or owned by leaving sessions. The oldest
-- sessions are chosen, so the choice stays the same until they have given one back.
local function donors(parts, b)
  local short = b.lacking - b.free - b.excess
  local leaving = between(parts, LEAVING, ENDS - 1)
  for i = 2, #leaving, 2 do
    short = short - (leaving[i] - LEAVING)
  end
  local all = redis.call('ZRANGEBYSCORE', parts, LIVE + b.most, LEAVING - 1)
  table.sort(all)
  return {unpack(all, 1, short)}
end

-- surplus returns how many partitions a live session must give back.
local function surplus(parts, b, session, owned)
  local more = math.max(0, owned - b.most)
  for _, c in ipairs(donors(parts, b)) do
    if c == 'c' .. session then
      more = more + 1
    end
  end
  return more
end

-- notify publishes which other sessions should sync after a change: those that may take partitions or must give back.
local function notify(parts, channel, session, n, changed)
  if not changed or count(parts, LIVE, LEAVING - 1) == 0 then
    return
  end
  local b = balance(parts, n)
  local lists, text = {b.high, donors(parts, b)}, ' '
  if b.free > 0 then
    table.insert(lists, b.low)
  end
  if b.free > b.lacking then
    table.insert(lists, redis.call('ZRANGEBYSCORE', parts, LIVE + b.least, LIVE + b.least, 'LIMIT', 0, b.free - b.lacking + 1))
  end
  for _, list in ipairs(lists) do
    for _, c in ipairs(list) do
      if c ~= 'c' .. (session or '') then
        text = text .. string.sub(c, 2) .. ' '
      end
    end
  end
  if text ~= ' ' then
    redis.pcall('PUBLISH', channel, text)
  end
end
