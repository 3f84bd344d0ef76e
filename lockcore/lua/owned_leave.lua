-- owned_leave: remove an entry, or leave the queue, and grant the lock to the next waiters.
-- internal/lock sends it (kind.go), as mutex_leave.
--
-- KEYS[1] lock    sorted set, see part_entry.lua
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, written with ARGV[3] to refuse requests of this attempt that arrive later
-- KEYS[6] size    string, of a Semaphore, see owned_acquire
-- ARGV[1] me      this attempt
-- ARGV[2] rest    '<keep> <last> <channels>'. keep: ms, TTL of the token counter after a grant.
--                 last: '1' if the process cannot check a grant later, as it closes its
--                 Client, otherwise '0'. channels: the prefix of the channels of processes
-- ARGV[3] tomb    ms, TTL of the tombstone; absent: none is written
--
-- Returns 1 + n   the entry was mine and is removed; my owner has n others
--         -n      it was not mine; my owner has n entries
-- If a waiter was granted an entry, or there is more to do, the number is in a list: {number, check}. Then send
-- the request again in check ms: it serves the next waiters if a grant was not confirmed.
--
-- Twice is safe: the second time nothing is mine. Deletions come first, so that they
-- work while the server is out of memory.
local lock, fence, queue, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[1]

--@include clock
--@include entry

tag = string.sub(me, 1, 3)
local mode, owner = parts_of(me)
local now = server_ms()
local score = redis.pcall('ZSCORE', lock, me)
local mine = type(score) == 'string' and end_of(score) >= now
local alone = mine and has_one(lock, mode)
if alone then
  redis.call('DEL', lock)
end
if alone and not ARGV[3] and redis.call('EXISTS', queue) == 0 then
  return 1
end

local keep, is_last, channels = string.match(ARGV[2], '^(%d+) (%d) (.*)$')

--@include token
--@include owned
--@include note
--@include queue
--@include owners

size = mode == 'p' and size_of(redis.pcall('GET', KEYS[6])) or 0
local s, shorter = look(lock, owner, me), false
if s then
  s = read(lock, s, now, me, true)
  shorter = s.mine and remove(lock, s, me)
end
local first = redis.call('ZRANGE', queue, '0', '0')[1]
if first then
  drop(queue, seen, me)
  clear_note(seen, me)
end
if ARGV[3] then
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[3])
end
local check
if first and s then
  -- If the size of a Semaphore is lost, the head is notified: its next request has a size.
  local known = (mode ~= 'p' or size > 0) and not shorter and first
  local _, stop, _, time = serve(lock, fence, keep, queue, seen, false, 0, now, known)
  check = stop < 0 and 0 or time
elseif first == me then
  notify_head(lock, redis.call('ZRANGE', queue, '0', '0')[1]) -- the name is in use by another kind of lock
end
if is_last == '1' then
  notify_all(lock, queue, seen, now)
end
local answer = not s and 0 or mine and 1 + s.count or -s.count
return check and {answer, check} or answer
