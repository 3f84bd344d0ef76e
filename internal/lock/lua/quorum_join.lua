-- quorum_join: let one server into a quorum, after its first start, after a loss of data, or
-- with a new list of servers. examiner.admit of package members sends it, with values of a quorum.Plan.
--
-- KEYS[1] marker  hash, the state of this server:
--                 run      the run of the server that was let in
--                 id       the id of the server; it is new after a loss of data
--                 list     the name of the list that it belongs to: number/size/version/hash
--                 servers  the ids of the servers in that list
--                 former   the ids of the servers in the list that it belonged to before
--                 after    ms, server clock: before this time, it grants nothing
--                 longest  ms, the longest TTL of any lock
--                 top      the greatest token that was committed, for any name
--                 return   random text that quorum_state stored after a loss of data
--                 returned the run in which quorum_state stored it
-- ARGV[1] return  the random text that quorum_state returned; '' for a member
-- ARGV[2] had     the name of the list that the server had when quorum_state answered; '' for none
-- ARGV[3] list    the name of the list that it gets
-- ARGV[4] servers the ids of the servers in that list
-- ARGV[5] id      the id that this server gets
-- ARGV[6] longest ms, the longest TTL of the client and of the other servers
-- ARGV[7] top     the greatest token that the other servers have committed
-- ARGV[8] wait    0: a member continues to grant locks; otherwise, it grants nothing for longest
--
-- Returns 1 the server is a member of the list, 0 nothing was changed: the random text is
-- the id of an earlier return, or the server has got another list.
--
-- Twice is safe: a member that has the list answers 1 and changes only if longest is longer. A late request
-- has the text of an earlier return or an earlier list, and is refused. longest and top never decrease.
-- run_id comes from part_member.
local marker, id, had, list, servers, me = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local longest, top, wait = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

--@include member

local run = run_id()
local m = redis.call('HMGET', marker, 'run', 'list', 'longest', 'top', 'return', 'returned', 'servers')
local member = m[1] == run
if not member and (m[5] ~= id or m[6] ~= run) or (m[2] or '') ~= had and m[2] ~= list then
  return 0
end
longest = math.max(longest, tonumber(m[3]) or 0)
top = math.max(top, tonumber(m[4]) or 0)
if m[2] ~= list then
  redis.call('HSET', marker, 'former', m[7] or '')
end
if member and (m[2] == list or wait == '0') then
  redis.call('HSET', marker, 'list', list, 'servers', servers, 'longest', string.format('%.0f', longest))
  return 1
end
local time = redis.call('TIME')
local after = tonumber(time[1]) * 1000 + math.ceil(tonumber(time[2]) / 1000) + longest
redis.call('HSET', marker, 'run', run, 'id', me, 'list', list, 'servers', servers,
  'after', string.format('%.0f', after), 'longest', string.format('%.0f', longest), 'top', string.format('%.0f', top))
redis.call('HDEL', marker, 'return', 'returned')
return 1
