-- owned_renew: extend an entry that this attempt still has.
--
-- KEYS[1] lock    hash, see part_owned.lua
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only moves the end of what is mine, and never creates it. The
-- key's end comes first: it works while the server is out of memory, and after it the
-- HSET does.
local lock, me = KEYS[1], ARGV[1]

--@include owned

local _, _, owner = parts_of(me)
local value = redis.pcall('HGET', lock, 'o:' .. owner)
if type(value) == 'table' then
  return 0
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local till = now + tonumber(ARGV[2])
local token, list = entries_of(value, now)
for _, entry in ipairs(list) do
  if entry[3] == me then
    local done = end_at(lock, math.max(till, now + redis.call('PTTL', lock)))
    if type(done) == 'table' then
      return done
    end
    entry[2] = math.max(entry[2], till)
    put(lock, owner, token, list)
    return 1
  end
end
return 0
