-- leader_renew_member: extend a leadership at one server of a quorum, and write the record. Sent by Election.renewal.
--
-- KEYS[1] lock      string, the holder's attempt; absent: free
-- KEYS[2] tomb      string, exists if this attempt was abandoned
-- KEYS[3] marker    hash, the state of this server, see quorum_join
-- KEYS[4] leader    hash, the record
-- ARGV[1] me        the attempt that leads
-- ARGV[2] ttl       ms
-- ARGV[3] list      the name of the client's list of servers
-- ARGV[4] token     of the lease
-- ARGV[5] holder    identity to be shown
-- ARGV[6] metadata  JSON object
-- ARGV[7] age       ms since the work of the leader began
-- ARGV[8] channel   announces a new record
--
-- Returns the answers of quorum_renew, but {1, n} instead of {1}. With {1, n} and {10}, the record is written: a
-- server that waits after a loss of data grants nothing, but it counts for readers. n is 1 if the record was renewed,
-- 2 if it is new, 3 if it has a newer version or a greater token, which stays, or cannot be written.
--
-- Twice is safe: only the holder extends its lock. A record with a greater token stays, and a second run does not
-- remove the end of this leadership from the record.
local lock, tomb, marker, leader = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, ttl, list, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local holder, metadata, age, channel = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

-- extend comes from part_extend, record and renewed from part_leader.
--@include member
--@include extend
--@include clock
--@include leader

local answer = extend(lock, tomb, marker, me, ttl, list, token)
if answer[1] ~= 1 and answer[1] ~= 10 then
  return answer
end
local found = redis.pcall('HMGET', leader, 'v', 'token')
local last, wrote = tonumber(found[2]) or 0, 3
if (tonumber(found[1] or 1) or 2) > 1 then
  last = math.huge
end
if last < tonumber(token) then
  if record(leader, channel, me, holder, token, age, ttl, metadata) then
    wrote = 2
  end
elseif last == tonumber(token) then
  renewed(leader)
  wrote = 1
end
return answer[1] == 1 and {1, wrote} or answer
