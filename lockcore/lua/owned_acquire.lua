-- owned_acquire: acquire a lock with owners for one owner, or a slot of a Semaphore, join the
-- queue, or check whether the lock is free. internal/lock sends it (kind.go), as mutex_acquire.
--
-- KEYS[1] lock    sorted set, see part_entry.lua; absent: free
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, exists if this attempt was abandoned
-- KEYS[6] size    string, of a Semaphore: how many entries there may be
-- ARGV[1] me      this attempt, which names the mode and the owner
-- ARGV[2] ttl     ms, of the entry when granted to me
-- ARGV[3] keep    ms, TTL of the token counter after a grant
-- ARGV[4] rest    '<ask>[,<remaining>] <channels>', in one argument, as a free lock needs neither.
--                 ask: 'try' never queues; 'look' never queues anew; 'join' queues;
--                 a number queues at that score, after the queue was lost.
--                 remaining: how long (ms) a grant still reaches the caller in time; absent: no limit
--                 channels: the prefix of the channels of processes
-- ARGV[5] extends the attempt whose token I keep: an attempt of my owner with a valid lease, unless
--                 it reads and I write; '' for my own entry; '-' for no attempt. To write, I keep
--                 the token only if no later token was given. Otherwise I get a new
--                 token
-- ARGV[6] size    of a Semaphore, where none is stored
--
-- Returns token                 held by me for ttl from now
--         {9, token, slot, size}  the same of a Semaphore. slot -1: the server stood still, and
--                               the entry has ended meanwhile
--         {2, left ms, place, holder}  near the head: check when the lock ends
--         {3, left ms, place, holder}  in the queue
--         {4, left ms, holder}  held by others, not in the queue (try)
--         {5}                   no longer in the queue (look): join again
--         {6}                   the attempt was abandoned: this request came too late
--         {7}                   the name is of another kind of lock, see part_queue.lua
--         {8}                   my owner reads and is not the only reader: it can never
--                               write by waiting
-- left: ms until the head of the queue gets the lock if no lease is renewed. For 'try': until the lock, or the first
-- entry of a Semaphore, expires. -1 if the lock has no TTL (another program wrote it). -2 if the queue has more dead
-- waiters than one call removes: send the request again. holder: the attempt that writes, otherwise the attempt whose
-- entry ends last; '' without entries.
--
-- An owner that has an entry does not queue, because it would wait for itself.
--
-- Twice is safe: an attempt with an entry gets the same token again, or a later one, and
-- the entry is extended to the full ttl. An attempt in the queue keeps its
-- place. An attempt that got {7} or {8} is no longer queued: it joins again, and gets the same reply.
local lock, fence, queue, seen, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, ttl, keep, extends = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

--@include clock
--@include token
--@include entry

tag = string.sub(me, 1, 3)
local mode, owner = parts_of(me)
local stored = mode == 'p' and size_of(redis.call('GET', KEYS[6]))
size = stored or tonumber(ARGV[6])

-- granted returns the reply to a grant. It stores the size of a Semaphore, which is kept for a week after each grant.
-- This comes last: the writes of a repeated request work while the server is out of memory, and SET does not.
local function granted(token, slot)
  if mode ~= 'p' then
    return token
  end
  redis.call('SET', KEYS[6], size, 'PX', WEEK)
  return {9, token, slot or tonumber(redis.call('ZSCORE', lock, 's:' .. me) or SLOT - 1) - SLOT, size}
end

local keys = redis.call('EXISTS', lock, queue, tomb)
if keys == 0 and (ARGV[4] < 'look' or ARGV[4] > 'try') then
  local token = next_token(fence, keep)
  create(lock, owner, token, mode, server_ms() + ttl, me)
  return granted(token, 0)
end

local ask, remaining, channels = string.match(ARGV[4], '^(-?%w+),?(%d*) (.*)')

--@include owned
--@include note
--@include queue
--@include place
--@include owners

local now = server_ms()
local till = now + tonumber(ttl)
local s = look(lock, owner, me)
local lone = keys == 1 and s and s.there -- there is neither a queue nor a tombstone
if not lone and redis.call('EXISTS', tomb) == 1 then
  return {6}
end
s = read(lock, s, now, me)
if not s then
  return {7}
end

-- token_of_mine returns the token of my entry: see ARGV[5]. Tokens do not order reads, so a reader may keep its token
-- although others have got later tokens.
local function token_of_mine()
  local token = extends ~= '-' and s.token
  if #extends > 1 then
    local score, beside = unpack(redis.call('ZMSCORE', lock, extends, 't:' .. extends))
    if score and end_of(score) >= now and (mode == 'r' or tonumber(score) >= WRITES) then
      token = whole(-tonumber(beside))
    end
  end
  if token and (mode ~= 'w' or redis.call('GET', fence) == token) then
    return token
  end
  return next_token(fence, keep)
end

if s.mine then
  clear_note(seen, me)
  local token = token_of_mine()
  extend(lock, s, me, till)
  if token ~= s.token then
    redis.call('ZADD', lock, 'XX', '-' .. token, 't:' .. me)
  end
  return granted(token)
end

if ask == 'look' and not redis.call('ZSCORE', queue, me) then
  return {5}
end
local first = not lone and redis.call('ZRANGE', queue, '0', '0')[1]
local answer = verdict(lock, s, mode, now)
local token, stop, refused, time
if answer == 'in' and (s.count > 0 and mode ~= 'p' or not first) then
  token = token_of_mine()
  enter(lock, s, mode, me, token, till)
end
if token or answer == 'upgrade' then
  if first then
    drop(queue, seen, me)
    clear_note(seen, me)
    serve(lock, fence, keep, queue, seen, false, 0, now, first)
  end
  if token then
    return granted(token)
  end
  return {8}
end

local at = enqueue(queue, seen, me, ttl, ask, now, first, tonumber(remaining))
token, stop, refused, time = serve(lock, fence, keep, queue, seen, me, ttl, now, first)
if not at and stop == 0 then
  -- The queue before a 'try' had dead waiters only.
  s = read(lock, look(lock, owner, me), now, me)
  if verdict(lock, s, mode, now) == 'in' then
    token = next_token(fence, keep)
    enter(lock, s, mode, me, token, till)
  end
end
if token then
  return granted(token)
end
if refused then
  return {refused}
end
if mode == 'p' and not stored then -- others may have been granted slots
  redis.call('SET', KEYS[6], size, 'PX', WEEK)
end
local left = -2
if stop >= 0 and s.swept then
  left = redis.call('PTTL', lock)
  if at then
    left = math.min(left, stop - now + 1)
  elseif mode == 'p' then
    left = first_end(lock, now) - now
  end
end
local holder = last(lock, '0', BELOW_COUNT)
if not at then
  return {4, left, holder or ''}
end
return placed(lock, queue, me, at, holder, left, time)
