-- owned_downgrade: turn a write entry into a read entry, without a gap. internal/lock sends it for RWMutex.Downgrade.
--
-- KEYS[1] lock    sorted set, see part_entry.lua
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- ARGV[1] me      this attempt
-- ARGV[2] keep    ms, TTL of the token counter after a grant
-- ARGV[3] channels  the prefix of the channels of processes
--
-- Returns 1 it reads, 0 it is not mine (any more): lost.
--
-- Twice is safe: a read entry stays as it is.
local lock, fence, queue, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, channels = ARGV[1], ARGV[3]

--@include clock
--@include token
--@include entry
--@include owned
--@include note
--@include queue
--@include owners

local _, owner = parts_of(me)
local now = server_ms()
local s = read(lock, look(lock, owner, me), now, me)
if not s or not s.mine then
  return 0
end
redis.call('PEXPIREAT', lock, whole(s.ends)) -- the TTL comes first, for the reason in extend
redis.call('ZADD', lock, 'XX', score_of('r', s.mine), me)
serve(lock, fence, ARGV[2], queue, seen, false, 0, now, redis.call('ZRANGE', queue, '0', '0')[1])
return 1
