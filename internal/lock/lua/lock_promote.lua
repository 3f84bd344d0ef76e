-- lock_promote: move a waiter to the head of a mutex's queue, which the holder asks for. lock.Lease.Promote sends it.
--
-- KEYS[1] lock       string, the holder's attempt
-- KEYS[2] queue      sorted set, attempts in order of arrival
-- KEYS[3] seen       hash, attempt -> alive until (ms, server clock)
-- ARGV[1] me         the attempt that holds the lock
-- ARGV[2] identity   of the waiter; the first live waiter of that identity is moved
-- ARGV[3] channels   the prefix of the channels of processes
--
-- Returns 1 the waiter is the head of the queue, 0 it does not wait, -1 the lock is not mine.
-- With 0 and -1 nothing was changed.
--
-- The new score of the waiter is the negative time of the move (ms). Waiters join with positive scores,
-- so a waiter that has lapsed and joins again at its old score cannot pass the moved one. The waiter that was
-- moved last is the head. A waiter that already is the head gets a negative score, too.
--
-- Twice is safe: a head that was moved keeps its score, and the answer is 1 again.
-- server_ms comes from part_clock, notify_head from part_queue.
local lock, queue, seen = KEYS[1], KEYS[2], KEYS[3]
local me, identity, channels = ARGV[1], ARGV[2], ARGV[3]

--@include clock
--@include note
--@include queue

if redis.pcall('GET', lock) ~= me then
  return -1
end
local now = server_ms()
local list = redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES')
for i = 1, #list, 2 do
  local attempt = list[i]
  if string.match(attempt, '^nl1:%w+%.%w+/(.*)$') == identity
    and tonumber(redis.call('HGET', seen, attempt) or 0) > now then
    local first = tonumber(list[2])
    if i > 1 or first > 0 then
      redis.call('ZADD', queue, string.format('%.0f', math.min(-now, first - 1)), attempt)
    end
    if i > 1 then
      notify_head(lock, attempt)
    end
    return 1
  end
end
return 0
