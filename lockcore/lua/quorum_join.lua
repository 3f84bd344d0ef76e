-- quorum_join: let one server into a quorum, after its first start, after a loss of data, or
-- with a new list of servers.
--
-- KEYS[1] marker  hash, the state of this server:
--                 run      the run of the server that was let in
--                 list     the list that it belongs to: number/size
--                 after    ms, server clock: it grants nothing before
--                 longest  ms, the longest TTL of any lock
--                 top      the greatest token that was committed, for any name
--                 return, returned  the number of its return, and the run that returned
-- ARGV[1] return  the number that quorum_state returned; '' for a member
-- ARGV[2] list    the number of the list
-- ARGV[3] size    the number of servers in the list
-- ARGV[4] longest ms, the longest TTL of the client and of the other servers
-- ARGV[5] top     the greatest token that the other servers have committed
--
-- Returns 1 it is a member of the list, 0 nothing was changed: the number of the return is
-- an old one, the server has a later list, or the list has fewer servers than its present one.
--
-- Twice is safe: a member changes only if the list is later or longest is longer. A request
-- that is late has the number of an earlier return, and top may be too small then. longest
-- and top never decrease.
local marker, id = KEYS[1], ARGV[1]
local list, size, longest, top = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

--@include member

local run = run_id()
local m = redis.call('HMGET', marker, 'run', 'list', 'longest', 'top', 'return', 'returned')
local at, servers = string.match(m[2] or '0/0', '^(%d+)/(%d+)$')
at, servers = tonumber(at), tonumber(servers)
if at > list or servers > size or at == list and servers ~= size then
  return 0
end
longest = math.max(longest, tonumber(m[3]) or 0)
top = math.max(top, tonumber(m[4]) or 0)
if m[1] == run and at == list then
  redis.call('HSET', marker, 'longest', string.format('%.0f', longest))
  return 1
end
if m[1] ~= run and (m[5] ~= id or m[6] ~= run) then
  return 0
end
local time = redis.call('TIME')
local after = tonumber(time[1]) * 1000 + math.ceil(tonumber(time[2]) / 1000) + longest
redis.call('HSET', marker, 'run', run, 'list', ARGV[2] .. '/' .. ARGV[3],
  'after', string.format('%.0f', after), 'longest', string.format('%.0f', longest), 'top', string.format('%.0f', top))
redis.call('HDEL', marker, 'return', 'returned')
return 1
