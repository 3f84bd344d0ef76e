-- lock_force: take a lock of any kind from those who were seen to hold it.
--
-- KEYS[1] lock    string or sorted set, see mutex_acquire and part_owned.lua
-- KEYS[2] queue   sorted set, attempts in order of arrival
-- ARGV[1] kind    what lock_inspect told
-- ARGV[2] seen    the attempts that it told, a line each
--
-- Returns how many of them held it still; of a key that is no lock of ours 1, as it
-- is deleted whole.
--
-- Twice is safe: who has come to hold the lock since is not among those who were seen.
-- Of foreign keys one that was seen cannot be told from another of the same value.
-- The line is served by those in it: the first three that may hear it are told to look.
local lock, queue = KEYS[1], KEYS[2]
local kind = ARGV[1]

--@include kind
--@include owned
--@include line
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
      strike(lock, s, attempt)
    end
  end
end
if taken > 0 then
  local told = 0
  for _, attempt in ipairs(redis.pcall('ZRANGE', queue, 0, 999)) do
    if told < 3 and tell(lock, attempt, 'g', '') ~= 0 then
      told = told + 1
    end
  end
end
return taken
