-- lock_history: read when a client first saw the history of this server's data, or store that time
-- for other clients. A restart, a failover and an emptied server begin another history.
--
-- KEYS[1] history  string: '<run id> <replication id> <since>'; since: when (ms, server clock)
--                  a client first saw the history
-- ARGV[1] known    the history that the caller has seen last; '' for none
-- ARGV[2] reached  the greatest replication offset that it has seen in that history
--
-- Returns {history, age ms, offset, reason}, reason: why the history begins now. 0: it does
--         not; 1: there is no record of it; 2: the server is another process, or was
--         promoted; 3: its memory is older than what the caller knows, as after the restore of
--         a virtual machine
--         {} if the server does not report its run id and its replication id
--
-- A server gets a new replication id without a loss when its first replica arrives, and when
-- it has had none for an hour. It then has no second id.
-- A record that cannot be written is no error: then, each connection begins the history anew.
-- Connections must also work while the server has no memory.
--
-- Twice is safe: the second time, the record of the first is there.
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
