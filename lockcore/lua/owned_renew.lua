-- owned_renew: extend an entry that this attempt still has.
--
-- KEYS[1] lock    hash, see part_owned.lua
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only moves the end of what is mine, and never creates it.
local lock, me = KEYS[1], ARGV[1]

--@include owned

local kind, _, owner = parts_of(me)
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local s = read(lock, kind, owner, now)
for _, entry in ipairs(s and s.list or {}) do
  if entry[3] == me then
    entry[2] = math.max(entry[2], now + tonumber(ARGV[2]))
    store(lock, s, entry[2])
    return 1
  end
end
return 0
