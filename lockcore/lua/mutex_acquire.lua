-- mutex_acquire: acquire the lock, join the queue, or check whether the lock is free.
-- internal/lock sends it (kind.go) for Lock, TryLock and each check of a waiter.
--
-- KEYS[1] lock    string, the holder's attempt; absent: free
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, exists if this attempt was abandoned
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms, of the lock when held by me
-- ARGV[3] rest    '<mode>[,<remaining>] <channels>', in one argument, as a free lock needs neither.
--                 mode: 'try' never queues; 'look' never queues anew; 'join' queues;
--                 a number queues at that score, after the queue was lost.
--                 remaining: how long (ms) a grant still reaches the caller in time; absent: no limit
--                 channels: the prefix of the channels of processes
-- ARGV[4] keep    ms, TTL of the token counter after a grant; absent: the counter keeps its TTL
--
-- Returns token                 held by me for ttl from now
--         {2, left ms, place, holder}  near the head: check when the lock ends. Several waiters
--                               get this, as the first one may die with the holder
--         {3, left ms, place, holder}  in the queue
--         {4, left ms, holder}  held by another, not in the queue (try)
--         {5}                   no longer in the queue (look): join again
--         {6}                   the attempt was abandoned: this request came too late
--         {7}                   the name is of another kind of lock, see part_queue.lua
-- left: -1 if the lock has no TTL (another program wrote it); -2, and no holder, if it
-- is free but has more dead waiters than one call removes: send the request again.
-- place: my score in the queue, for a later ARGV[3].
--
-- Twice is safe: an attempt that holds the lock gets the same token again, and the
-- full ttl. If the second run did not extend the lock, a client whose first reply was lost
-- would believe in its lease for too long. An attempt in the queue keeps its place. An attempt
-- that got {7} joins again, and gets {7} again.
local lock, fence, queue, seen, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, ttl, keep = ARGV[1], ARGV[2], ARGV[4] or false

--@include clock
--@include token

-- A free lock without a queue is granted in any mode but 'look': then the queue was lost, and {5} makes the attempt
-- join again. A comparison of texts takes less time than string.sub.
local keys = (ARGV[3] < 'look' or ARGV[3] > 'try') and redis.call('EXISTS', lock, queue, tomb)
if keys == 0 then
  local token = next_token(fence, keep)
  redis.call('SET', lock, me, 'PX', ttl)
  return token
end

local holder = redis.pcall('GET', lock)
local lone = keys == 1 and holder -- there is neither a queue nor a tombstone
if not lone and redis.call('EXISTS', tomb) == 1 then
  return {6}
end
if type(holder) == 'table' then
  return {7}
end

--@include note

if holder == me then
  redis.call('PEXPIRE', lock, ttl)
  clear_note(seen, me)
  return redis.call('GET', fence) or next_token(fence, keep)
end

local mode, remaining, channels = string.match(ARGV[3], '^(-?%w+),?(%d*) (.*)')
if lone and mode == 'try' then
  return {4, redis.call('PTTL', lock), holder}
end

--@include queue
--@include place

local now, served = server_ms(), false
local first = not lone and redis.call('ZRANGE', queue, '0', '0')[1]
local at = enqueue(queue, seen, me, ttl, mode, now, first, tonumber(remaining))
if not at and mode == 'look' then
  return {5}
end

if not holder then
--@include mutex
  local answer = advance(lock, fence, keep, queue, seen, me, ttl, now)
  if redis.call('EXISTS', lock, queue) == 0 then -- all waiters were dead
    answer = next_token(fence, keep)
    redis.call('SET', lock, me, 'PX', ttl)
  end
  if answer then
    return answer
  end
  holder = redis.call('GET', lock)
  served = holder
else
  -- Remove dead waiters from the head, and notify the new head: otherwise, no waiter may check when the lock ends.
  local head = first
  for _ = 1, 100 do
    if not head or head == me or alive(seen, head, process_of(head) or '', now) then
      if head ~= first and head ~= me then
        notify_head(lock, head)
      end
      break
    end
    drop(queue, seen, head)
    head = redis.call('ZRANGE', queue, '0', '0')[1]
  end
end

if not at then
  return {4, redis.call('PTTL', lock), holder}
end
return placed(lock, queue, me, at, holder, nil, served or not first)
