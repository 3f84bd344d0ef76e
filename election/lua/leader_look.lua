-- leader_look: the record of an election, and whether its leader still leads.
--
-- KEYS[1] lock     string, the holder's attempt
-- KEYS[2] fence    string, the counter of fencing tokens
-- KEYS[3] leader   hash, the record
--
-- Returns {left ms, fence or nil, field, value, field, value, …}  left: of the
--         lock, of any holder; negative if nobody holds it. The leader of the
--         record leads while left is positive and fence is its token: a grant to
--         another moves the counter. The counter ends a week after a grant, so that
--         without one the lock is still of the last.
--
-- Twice is safe: it only reads.
local answer = {redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}
for _, text in ipairs(redis.call('HGETALL', KEYS[3])) do
  answer[#answer + 1] = text
end
return answer
