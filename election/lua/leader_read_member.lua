-- leader_read_member: read the record of an election at one server of a quorum. Sent by Election.readQuorum.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] leader  hash, the record
-- KEYS[3] marker  hash, the state of this server, see quorum_join
-- ARGV[1] list    the name of the client's list of servers
--
-- Returns {1, left ms, granted, field, value, field, value, …}  left, granted: see leader_read
--         {8}, {9}   this server may have lost the record, see part_member.lua
--
-- Twice is safe: it only reads.
local lock, leader, marker, list = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

-- refusal comes from part_member, granted_to from part_granted.
--@include member
--@include granted

-- The refusal {10} does not matter: a server that waits after a loss of data has the records since then.
local no = refusal(marker, list, 0)
if no and no[1] ~= 10 then
  return no
end
local granted = granted_to(lock, leader)
return {1, granted and 0 or redis.call('PTTL', lock), granted or '', unpack(redis.call('HGETALL', leader))}
