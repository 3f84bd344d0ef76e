-- lock_force: remove the given holders from a lock of any kind.
--
-- KEYS[1] lock    string or sorted set, see mutex_acquire and part_owned.lua
-- KEYS[2] queue   sorted set, attempts in order of arrival
-- ARGV[1] kind    the kind that lock_inspect returned
-- ARGV[2] seen    the holders' attempts that it returned, one a line
-- ARGV[3] channels  the prefix of the channels of processes
--
-- Returns how many of them still held the lock; 1 for a foreign key, which is deleted
-- as a whole.
--
-- Twice is safe: an attempt that acquired the lock later is not among the given ones.
-- A foreign key cannot be distinguished from a later one with the same value.
-- A waiter of each process is notified to look; the first one that lives serves the queue.
local lock, queue = KEYS[1], KEYS[2]
local kind, channels = ARGV[1], ARGV[3]

--@include kind
--@include owned
--@include queue
--@include owners

local seen = {}
for attempt in string.gmatch(ARGV[2], '[^\n]+') do
  seen[attempt] = true
end
local now = server_ms()
local taken = 0
if kind_of(lock) ~= kind then
  return 0
end
if kind == 'string' then
  if ARGV[2] == redis.call('GET', lock) then
    taken = redis.call('DEL', lock)
  end
elseif kind == 'other' then
  taken = redis.call('DEL', lock)
else
  for attempt in pairs(seen) do
    local sort, _, owner = parts_of(attempt)
    local s = sort == kind and read(lock, kind, owner, now, attempt)
    if s and s.mine then
      taken = taken + 1
      remove(lock, s, attempt)
    end
  end
end
if taken > 0 then
  notify_processes(lock, queue, 'l', '', {})
end
return taken
