-- quorum_state: return the state of one server of a quorum. A server that may have lost
-- data stores a random text, which quorum_join must repeat to make the server a member again.
-- examiner.states of package members sends it, and quorum.Next decides what to do.
--
-- KEYS[1] marker  hash, the state of this server, see quorum_join
-- ARGV[1] return  a new random text; '' for a client that only reads: nothing is stored
--
-- Returns {run, state, list, left, longest, top, return, id, servers, former}, all texts; '' stands for an absent
-- value. run identifies the process. state is 'member', or 'lost' for a server without data of this run. list
-- is the name of its list, servers has the ids in this list, former the ids in its list before. return is the stored
-- random text, id the id of the server. left (ms) is how long it grants nothing. longest (ms) is the longest TTL,
-- top the greatest committed token.
--
-- Twice is safe: the stored text stays until the server is a member again or loses data, so the answer is the same.
-- run_id comes from part_member.
local marker, id = KEYS[1], ARGV[1]

--@include member

local run = run_id()
local m = redis.call('HMGET', marker, 'run', 'list', 'after', 'longest', 'top', 'return', 'returned', 'id', 'servers', 'former')
local lost = m[1] ~= run
if lost and m[7] ~= run then
  m[6] = id
  if id ~= '' then
    redis.call('HSET', marker, 'return', id, 'returned', run)
  end
end
local time = redis.call('TIME')
local left = (tonumber(m[3]) or 0) - tonumber(time[1]) * 1000 - math.floor(tonumber(time[2]) / 1000)
return {run, lost and 'lost' or 'member', m[2] or '', string.format('%.0f', math.max(left, 0)),
  m[4] or '', m[5] or '', m[6] or '', m[8] or '', m[9] or '', m[10] or ''}
