-- leader_renew: extend a leadership and renew its record. The first renewal writes the record. Sent by
-- Election.renewal; term.Noticed acts on 2 and 3.
--
-- KEYS[1] lock      string, the holder's attempt
-- KEYS[2] leader    hash, the record
-- KEYS[3] terms     list, the newest terms: token, begin, end of the term before if its leader resigned
--                   (both in server ms), leader
-- ARGV[1] me        the attempt that leads
-- ARGV[2] ttl       ms
-- ARGV[3] token     fencing token of the lease
-- ARGV[4] holder    identity to be shown
-- ARGV[5] metadata  JSON object
-- ARGV[6] age       ms since the work of the leader began
-- ARGV[7] channel   announces a new record
--
-- Returns 1 if the lock was extended to ttl from now; 2 the same, and the record is new or has a request to resign;
-- 3 the same, but the record has a newer version, which stays, or cannot be written; 0 if the lock was lost.
--
--	granted ──the work begins, first renewal──► recorded ──renewals──► recorded ──► released, see mutex_leave
--	   │                                            └──the record is deleted, or set back──► the next renewal
--	   └──released before──► no record
--
-- Only the holder of the lock gets past the first line. If the first renewal is lost, the next renewal writes the
-- record. A renewal that arrives after the release changes nothing. A leader that dies leaves its record, which no
-- longer counts when the lock ends.
--
-- Twice is safe: a second run only moves the end of the holder's lock, and never creates the lock. The lock comes
-- first, and no failure to write the record affects it. A record of this attempt stays, with the request of an
-- operator, and its term is not listed again.
local lock, leader, terms = KEYS[1], KEYS[2], KEYS[3]
local me, ttl, token, holder, metadata, age, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- record, renewed and LEADER_KEPT come from part_leader.
--@include clock
--@include leader

if redis.pcall('GET', lock) ~= me then
  return 0
end
redis.call('PEXPIRE', lock, ttl)
local found = redis.pcall('HMGET', leader, 'v', 'by', 'asked', 'released')
if found.err or (tonumber(found[1] or 1) or 2) > 1 then
  return 3
end
if found[2] == redis.sha1hex(me) then
  renewed(leader)
  return found[3] == token and 2 or 1
end
local acquired = record(leader, channel, me, holder, token, age, ttl, metadata)
if not acquired then
  return 3
end
local last = redis.pcall('LRANGE', terms, 0, 0)
if string.match(last[1] or '', '^%d+') ~= token then
  redis.pcall('LPUSH', terms, string.format('%s %s %s %s', token, acquired, found[4] or 0, holder))
  redis.pcall('LTRIM', terms, 0, 99)
  redis.pcall('PEXPIRE', terms, LEADER_KEPT)
end
return 2
