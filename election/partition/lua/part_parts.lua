-- A set of partitions, `parts`: one sorted set, so that it is lost as a whole or not at all. What a score says:
--
--   <partition>  0: free; otherwise the session of its owner
--   t<partition> minus the newest fencing token of the partition; absent: it never had an owner
--   m<attempt>   minus the session of the attempt of a replica, which is secret
--   e<session>   ms, server clock, the end of the session's lease
--   c<session>   LIVE + the number of its partitions: the session takes part in the sharing
--   d<session>   LEAVING + the number of its partitions: it gives back all
--   v<session>   minus the version of its partitions, the token of their last change; absent: none since its join
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

-- forget ends a session. Its partitions are free. The first write needs no memory.
local function forget(parts, session)
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
    forget(parts, string.sub(e, 2))
  end
  return #over > 0
end

-- next_end returns the time in ms until the first end of the lease of another session, -1 if there is none.
local function next_end(parts, session, now)
  local ends = redis.call('ZRANGEBYSCORE', parts, ENDS, ENDS_MAX, 'WITHSCORES', 'LIMIT', 0, 2)
  local i = ends[1] == 'e' .. session and 3 or 1
  return ends[i] and ends[i + 1] - now or -1
end

-- balance returns what the sessions that take part lack and have: least and most, the shares that they settle
-- at; free, the partitions without an owner; lacking, how many are lacked by sessions with less than least, and
-- these sessions; excess, by how many others have more than most, and these.
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

-- room returns how many free partitions a session takes that takes part and has so many: up to least, and one more
-- if enough remain for those that have less.
local function room(b, owned)
  local lacks = math.max(0, b.least - owned)
  local take = math.min(b.free, lacks)
  if owned < b.most and b.free - take > b.lacking - lacks then
    take = take + 1
  end
  return take
end

-- asked returns the sessions, as c<session>, that give back one of most partitions, because others lack more than
-- is free, is to be given back anyway, or is owned by sessions that leave. They are the oldest that have as many:
-- until they have done it, no other one is asked.
local function asked(parts, b)
  local short = b.lacking - b.free - b.excess
  local leaving = between(parts, LEAVING, ENDS - 1)
  for i = 2, #leaving, 2 do
    short = short - (leaving[i] - LEAVING)
  end
  local all = redis.call('ZRANGEBYSCORE', parts, LIVE + b.most, LEAVING - 1)
  table.sort(all)
  return {unpack(all, 1, short)}
end

-- surplus returns how many of its partitions a session that takes part is to give back.
local function surplus(parts, b, session, owned)
  local more = math.max(0, owned - b.most)
  for _, c in ipairs(asked(parts, b)) do
    if c == 'c' .. session then
      more = more + 1
    end
  end
  return more
end

-- tell publishes which other sessions should call, if something changed: those that may take or are to give back.
local function tell(parts, channel, session, n, changed)
  if not changed or count(parts, LIVE, LEAVING - 1) == 0 then
    return
  end
  local b = balance(parts, n)
  local lists, text = {b.high, asked(parts, b)}, ' '
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
