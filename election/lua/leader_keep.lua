-- leader_keep: extend a leadership at one server of a quorum, and write the record.
--
-- KEYS[1] lock      string, the holder's attempt; absent: free
-- KEYS[2] tomb      string, exists if this attempt was abandoned
-- KEYS[3] marker    hash, the state of this server, see quorum_join
-- KEYS[4] leader    hash, the record
-- ARGV[1] me        the attempt that leads
-- ARGV[2] ttl       ms
-- ARGV[3] list      the name of the list of servers that the client has
-- ARGV[4] token     of the lease
-- ARGV[5] holder    identity to be shown
-- ARGV[6] metadata  JSON object
-- ARGV[7] term      number of the leadership
-- ARGV[8] acquired  ms, when it began, by the clock of one server
-- ARGV[9] channel   where a new record is announced
-- ARGV[10] must     '1': it is an error if the record cannot be written
--
-- Returns the answers of quorum_renew. With {1} and with {10}, the record is written: a
-- server that waits after a loss of data grants nothing, but it counts for readers.
--
-- Twice is safe: it extends a lock that is mine. A record of a greater token stays, and so
-- does the end of this leadership.
local lock, tomb, marker, leader = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, ttl, list, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local holder, metadata, term, acquired, channel, must = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

--@include member
--@include extend
--@include clock
--@include leader

local answer = extend(lock, tomb, marker, me, ttl, list, token)
if answer[1] ~= 1 and answer[1] ~= 10 then
  return answer
end
local found = redis.pcall('HMGET', leader, 'v', 'token')
local written = false
if (tonumber(found[1] or 1) or 2) <= 1 then
  local last = tonumber(found[2]) or 0
  if last < tonumber(token) then
    written = record(leader, channel, me, holder, token, term, acquired, server_ms(), ttl, metadata)
  elseif last == tonumber(token) then
    written = true
    redis.pcall('HSET', leader, 'renewed', server_ms())
    redis.pcall('PEXPIRE', leader, LEADER_KEPT)
  end
end
if must == '1' and not written then
  return redis.error_reply('ERR the leader record cannot be written')
end
return answer
