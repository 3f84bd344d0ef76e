-- leader_claim: write the record of the leader, at the beginning of a term.
--
-- KEYS[1] lock      string, the holder's attempt
-- KEYS[2] leader    hash, the record
-- KEYS[3] fence     string, the counter of fencing tokens
-- KEYS[4] terms     list, the newest terms: term, token, its begin and the end of the one before, if that resigned
--                   (both in server ms), and the leader
-- ARGV[1] me        the attempt that holds the lock
-- ARGV[2] ttl       ms, of the lock, for the record; the lock's end is not moved
-- ARGV[3] token     fencing token of the lease; '' if the candidate does not know it yet: the
--                   counter's, which does not change while the lock is held
-- ARGV[4] holder    identity to be shown
-- ARGV[5] metadata  JSON object
-- ARGV[6] channel   where a new leader is announced
--
-- Returns {term, acquired ms, token}  written
--         {0}                  the lock is not mine (any more): lost; or there is no counter
--         {-1}                 the record is of a newer version: left alone
--
-- Twice is safe: if the record has this token, it stays, and its term and time are returned.
local lock, leader, fence, terms = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, ttl, token, holder, metadata, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

--@include clock
--@include leader

if redis.pcall('GET', lock) ~= me then
  return {0}
end
if token == '' then
  token = redis.call('GET', fence)
  if not token then
    return {0}
  end
end
local v, of, by, term, acquired, released = unpack(redis.call('HMGET', leader, 'v', 'token', 'by', 'term', 'acquired', 'released'))
if tonumber(v or 1) > 1 then
  return {-1}
end
if of ~= token then
  if by ~= redis.sha1hex(me) then -- otherwise an earlier grant of mine lapsed before that term began
    term = string.format('%.0f', (tonumber(term) or 0) + 1)
  end
  acquired = server_ms()
  if not record(leader, channel, me, holder, token, term, acquired, acquired, ttl, metadata) then
    return redis.error_reply('ERR the leader record cannot be written')
  end
  redis.pcall('LPUSH', terms, string.format('%s %s %.0f %s %s', term, token, acquired, released or 0, holder))
  redis.pcall('LTRIM', terms, 0, 99)
  redis.call('PEXPIRE', terms, LEADER_KEPT)
end
return {tonumber(term), tonumber(acquired), token}
