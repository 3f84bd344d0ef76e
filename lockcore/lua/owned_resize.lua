-- owned_resize: change how many leases a Semaphore may have, and serve its queue. internal/lock sends it for
-- Semaphore.Resize.
--
-- KEYS[1] lock    sorted set, see part_entry.lua
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] size    string, how many entries there may be
-- ARGV[1] size    the new size
-- ARGV[2] keep    ms, TTL of the token counter after a grant
-- ARGV[3] channels  the prefix of the channels of processes
--
-- Returns before  the size before, or 0 if none was stored. It is a list {before, check} if waiters were
--                 granted entries, or the queue must be served again: in check ms
--         -1      the name is of another kind of lock; nothing was changed
--
-- Entries beyond a smaller size stay until they end.
--
-- Twice is safe: the second time the size stays as it is.
local lock, fence, queue, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keep, channels = ARGV[2], ARGV[3]

--@include clock
--@include token
--@include entry
--@include owned
--@include note
--@include queue
--@include owners

tag, size = 'np1', tonumber(ARGV[1])
if not look(lock, '-', '') then
  return -1
end
local before = size_of(redis.call('GET', KEYS[5])) or 0
local _, stop, refused, time = serve(lock, fence, keep, queue, seen, false, 0, server_ms())
if refused then
  return -1
end
redis.call('SET', KEYS[5], size, 'PX', WEEK)
local check = stop < 0 and 0 or time
return check and {before, check} or before
