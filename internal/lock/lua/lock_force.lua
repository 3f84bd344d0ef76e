-- lock_force: remove the given holders from a lock of any kind. lock.Client.Force sends it for an operator.
--
-- KEYS[1] lock    string or sorted set, see mutex_acquire and part_entry.lua
-- KEYS[2] queue   sorted set, attempts in order of arrival
-- KEYS[3] forced  hash, attempt -> remark of the operator who has released it
-- KEYS[4] releases  list, the newest releases by force: server ms, number of leases, and remark, a line each
-- ARGV[1] kind    the kind that lock_inspect returned
-- ARGV[2] seen    the attempts of the holders to remove, one a line
-- ARGV[3] remark  the operator, a line break, and the reason
-- ARGV[4] channels  the prefix of the channels of processes
--
-- Returns how many of the given holders were released with this remark, by this call or an earlier one; 1 for a
-- foreign key, which is deleted as a whole.
--
-- Twice is safe: an attempt that acquired the lock later is not among the given ones. The second call finds the remarks
-- of the first one, and returns the same number. Only a foreign key that was written again is deleted again, and
-- a string only with the same value. A waiter of each process is notified, as some processes may be frozen. Any check
-- serves the queue. A holder reads the remark after a renewal that found no lock. So the remark lasts as long as the
-- lock would have. It is written last, because the release must work while the server is out of memory. kind_of comes
-- from part_kind, parts_of from part_entry, look from part_owned, server_ms from part_clock, notify_processes from
-- part_queue, read and remove from part_owners.
local lock, queue, forced, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local kind, remark, channels = ARGV[1], ARGV[3], ARGV[4]
local KEPT, MOST = 604800000, 100 -- TTL (ms) and maximum length of `releases`

--@include kind
--@include entry
--@include owned
--@include clock
--@include note
--@include queue
--@include owners

-- released_before returns how many of the attempts an earlier call has released.
local function released_before()
  local n = 0
  for attempt in string.gmatch(ARGV[2], '[^\n]+') do
    if redis.pcall('HGET', forced, attempt) == remark then
      n = n + 1
    end
  end
  return n
end

if kind_of(lock) ~= kind then
  return released_before()
end
local now = server_ms()
local lasts = math.max(redis.call('PTTL', lock), redis.call('PTTL', forced), 1000)
local taken = {}
if kind == 'string' then
  if ARGV[2] == redis.call('GET', lock) then
    redis.call('DEL', lock)
    taken[1] = ARGV[2]
  end
elseif kind == 'other' then
  redis.call('DEL', lock)
  taken[1] = ''
else
  tag = kind
  for attempt in string.gmatch(ARGV[2], '[^\n]+') do
    local mode, owner = parts_of(attempt)
    local s = mode and read(lock, look(lock, owner, attempt), now, attempt)
    if s and s.mine then
      taken[#taken + 1] = attempt
      remove(lock, s, attempt)
    end
  end
end
if #taken == 0 then
  return released_before()
end
notify_processes(lock, queue, 'l', '', {})
for _, attempt in ipairs(taken) do
  redis.pcall('HSET', forced, attempt, remark)
end
redis.call('PEXPIRE', forced, string.format('%.0f', lasts))
redis.pcall('LPUSH', releases, string.format('%.0f\n%d\n%s', now, #taken, remark))
redis.pcall('LTRIM', releases, 0, MOST - 1)
redis.call('PEXPIRE', releases, KEPT)
return #taken
