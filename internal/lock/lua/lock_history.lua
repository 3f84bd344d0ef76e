-- lock_history: read when a client first saw the history of this server's data, or store that time
-- for other clients. A restart, a failover and an emptied server begin another history, which may lack the latest
-- writes. lock.history.Check sends it for a Client with Config.LockDelay, on each new connection.
--
-- KEYS[1] history  string: '<run id> <replication id> <since>'; since: when (ms, server clock)
--                  a client first saw the history
-- ARGV[1] known    the history that the caller has seen last; '' for none
-- ARGV[2] reached  the greatest replication offset that the caller has seen in that history
--
-- Returns {history, age ms, offset, reason}: the client grants nothing until the age is LockDelay. reason is
--         why the history begins now. 0: it does not; 1: there is no record of it; 2: the server is another
--         process, or was promoted; 3: the data is older than what the caller knows, as after
--         the restore of a virtual machine
--         {} if the server does not report its run id and its replication id
--
-- A server also gets a new replication id, without a loss of data, when its first replica arrives, and when
-- it has had no replica for an hour. It then has no second id, so this is no new history.
-- A record that cannot be written is no error, because connections must also work while the server has no
-- memory. Each connection then begins the history anew.
--
-- Twice is safe: the second call finds the record of the first, and answers with the reason 0.
-- server_ms comes from part_clock.
local key, known, reached = KEYS[1], ARGV[1], tonumber(ARGV[2])

--@include clock

local function field(section, name)
  return string.match(redis.call('INFO', section), name .. ':(%w+)')
end

local run, id = field('server', 'run_id'), field('replication', 'master_replid')
local second, offset = field('replication', 'master_replid2'), field('replication', 'master_repl_offset')
if not run or not id or not second or not offset then
  return {}
end
local stored = redis.call('GET', key)
local of, part, since = string.match(stored or '', '^(%w+) (%w+) (%d+)$')
local reason = 0
if not since then
  reason = 1
elseif of ~= run or part ~= id and string.find(second, '[^0]') then
  reason = 2
elseif stored == known and tonumber(offset) < reached then
  reason = 3
end
local now = server_ms()
if reason > 0 then
  since = string.format('%.0f', now)
end
local history = run .. ' ' .. id .. ' ' .. since
redis.pcall('SET', key, history)
return {history, now - tonumber(since), tonumber(offset), reason}
