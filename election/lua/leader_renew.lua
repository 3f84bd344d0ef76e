-- leader_renew: extend a leadership and say so in the record.
--
-- KEYS[1] lock      string, the holder's attempt
-- KEYS[2] leader    hash, the record
-- ARGV[1] me        the attempt that leads
-- ARGV[2] ttl       ms
-- ARGV[3] token     fencing token of the lease
-- ARGV[4] holder    identity to be shown
-- ARGV[5] metadata  JSON object
-- ARGV[6] term      as leader_claim answered it
-- ARGV[7] acquired  ms, as leader_claim answered it
-- ARGV[8] channel   where a record that is written anew is announced
--
-- Returns 1 extended to ttl from now, 2 the same, and the record asks me to resign, 0 not mine
-- (any more): lost.
--
-- Twice is safe: it only moves the end of what is mine, and never creates the
-- lock. The lock comes first, and nothing about the record can make it fail. A
-- record that was lost, or set back, is written anew.
local lock, leader = KEYS[1], KEYS[2]
local me, ttl, token, holder, metadata = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local term, acquired, channel = ARGV[6], ARGV[7], ARGV[8]

--@include clock
--@include leader

if redis.pcall('GET', lock) ~= me then
  return 0
end
redis.call('PEXPIRE', lock, ttl)
local found = redis.pcall('HMGET', leader, 'v', 'token', 'asked')
if found.err or (tonumber(found[1] or 1) or 2) > 1 then
  return 1
end
if found[2] == token then
  redis.pcall('HSET', leader, 'renewed', server_ms())
  redis.pcall('PEXPIRE', leader, LEADER_KEPT)
  return found[3] == token and 2 or 1
end
record(leader, channel, me, holder, token, term, acquired, server_ms(), ttl, metadata)
return 1
