-- leader_read: read the record of an election, and whether its leader still leads. Sent by Election.read.
--
-- KEYS[1] lock     string, the holder's attempt
-- KEYS[2] leader   hash, the record
--
-- Returns {left ms, granted, field, value, field, value, …}  left: remaining time of the leader in the
--         record; 0 or less after its end. granted: identity of a holder of the lock that is not in
--         the record, or ''.
--
-- Twice is safe: it only reads.
local lock, leader = KEYS[1], KEYS[2]

-- granted_to comes from part_granted.
--@include granted

local granted = granted_to(lock, leader)
return {granted and 0 or redis.call('PTTL', lock), granted or '', unpack(redis.call('HGETALL', leader))}
