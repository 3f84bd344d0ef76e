-- leader_resign: ask the leader of a term to resign, on behalf of an operator. Sent by Election.ask.
--
-- KEYS[1] lock     string, the holder's attempt
-- KEYS[2] leader   hash, the record
-- ARGV[1] token    fencing token of the term that the operator means
-- ARGV[2] request  JSON object with an id, the operator and the reason
-- ARGV[3] channel  announces the request
--
-- Returns 1 if the request is in the record, 0 if nobody leads, -1 if the record has a newer version and
--         stays, -2 if the term is over, as another replica leads or may lead.
--
--	leads ──request──► leads, asked ──the leader reads it──► drains ──the work returns──► released
--	                       │    └──no candidate of the identity: the leader logs it──► leads
--	                       └──the leader dies or loses the lock──► the next term, not asked
--
-- The operator writes the request. Only the leader acts on it. The leader reads the record after the
-- message. If the message is lost, the next renewal is answered with 2 instead of 1. If the leader
-- dies, its lock expires as usual, and the request concerns no later term. If the record is lost, the request is
-- lost with it.
--
-- Twice is safe: the same request stays, and the reply is the same. Another request replaces it. A leader
-- that drains continues to drain.
local lock, leader = KEYS[1], KEYS[2]
local token, request, channel = ARGV[1], ARGV[2], ARGV[3]

-- announce comes from part_leader, granted_to from part_granted.
--@include clock
--@include leader
--@include granted

if redis.call('EXISTS', lock) == 0 then
  return 0
end
local v, of, asked, last = unpack(redis.call('HMGET', leader, 'v', 'token', 'asked', 'request'))
if tonumber(v or 1) > 1 then
  return -1
end
if of ~= token or granted_to(lock, leader) then
  return -2
end
if asked ~= token or last ~= request then
  redis.call('HSET', leader, 'asked', token, 'request', request)
  announce(channel, token)
end
return 1
