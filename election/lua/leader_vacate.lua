-- leader_vacate: write down that the last leader has resigned and nobody leads.
--
-- KEYS[1] lock     string, absent: free
-- KEYS[2] leader   hash, the record
-- ARGV[1] token    fencing token of the lease that was released
-- ARGV[2] channel  where that is announced
--
-- Returns 1 written, 0 somebody holds the lock, or the record is another's.
--
-- Twice is safe: the second time the record says so already.
local lock, leader = KEYS[1], KEYS[2]
local token, channel = ARGV[1], ARGV[2]

--@include clock
--@include leader

if redis.call('EXISTS', lock) == 1 then
  return 0
end
local v, of, released = unpack(redis.call('HMGET', leader, 'v', 'token', 'released'))
if tonumber(v or 1) > 1 or of ~= token then
  return 0
end
if not released then
  redis.call('HSET', leader, 'holder', '', 'released', server_ms())
  announce(channel, token)
end
return 1
