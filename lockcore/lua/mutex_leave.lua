-- mutex_leave: release the lock, or leave the queue, and grant a free lock to the next waiter.
-- internal/lock sends it (kind.go) for Unlock and for an abandoned attempt.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, written to refuse requests of this attempt that
--                 arrive later; absent: no request is under way
-- KEYS[6] record  hash of an election, with KEYS[5]: the end of the leader is written there if the lock stays free
-- ARGV[1] me      this attempt
-- ARGV[2] rest    '<keep> <last> <channels>', in one argument, as it is only for a queue.
--                 keep: ms, TTL of the token counter after a grant.
--                 last: '1' if the process cannot check a grant later, as it closes its
--                 Client, otherwise '0'. channels: the prefix of the channels of processes
-- ARGV[3] tomb    ms, TTL of the tombstone, with KEYS[5]; '0' for none
-- ARGV[4] news    channel of messages about the record, with KEYS[6]
--
-- Returns 1 the lock was mine and is released, 0 it was not mine. If a waiter was granted
-- the lock, or there is more to do, the number is in a list: {number, check}. Then send the
-- request again in check ms: it serves the next waiter if the grant was not confirmed.
--
-- Twice is safe: the second time nothing is mine, and the next waiter is granted
-- the lock only while it is free. The DEL comes first, so that it works while
-- the server is out of memory.
--
-- If this attempt held the lock, any record is ended: it is of this attempt, or of an earlier leader if this attempt
-- did not begin to lead. Otherwise only a record of this attempt is ended: the record of a leader that died must
-- still show that.
local lock, queue = KEYS[1], KEYS[3]
local me, tomb = ARGV[1], ARGV[3] or '0'
local released = 0
if redis.pcall('GET', lock) == me then
  redis.call('DEL', lock)
  released = 1
end
if not KEYS[6] and redis.call('EXISTS', queue) == 0 then -- EXISTS takes less time than the ZRANGE below
  if tomb ~= '0' then
    redis.call('SET', KEYS[5], '1', 'PX', tomb)
  end
  return released
end
local first, second = unpack(redis.call('ZRANGE', queue, '0', '1'))

local keep, is_last, channels = string.match(ARGV[2], '^(%d+) (%d) (.*)$')

--@include clock
--@include token
--@include note
--@include queue
--@include mutex

local fence, seen = KEYS[2], KEYS[4]
if released == 0 then -- a holder is not in the queue
  drop(queue, seen, me)
end
clear_note(seen, me)
if tomb ~= '0' then
  redis.call('SET', KEYS[5], '1', 'PX', tomb)
end
local now, check = server_ms(), nil
if released == 1 then
  check = select(2, advance(lock, fence, keep, queue, seen, false, 0, now, first, second))
elseif redis.call('EXISTS', lock) == 0 then
  check = select(2, advance(lock, fence, keep, queue, seen, false, 0, now))
elseif first == me then
  notify_head(lock, second)
end
if is_last == '1' then
  notify_all(lock, queue, seen, now)
end
if KEYS[6] and redis.call('EXISTS', lock) == 0 then
--@include ended
  end_record(KEYS[6], released == 0 and me, ARGV[4])
end
return check and {released, check} or released
