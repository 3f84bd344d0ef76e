-- The record of an election, `leader`, is a hash. Only the holder of the lock and the release of the last holder
-- write it, except `asked` and `request`, see leader_resign.lua. The record counts while `by` is the SHA-1 of the
-- lock's value: otherwise its leader no longer leads, and a holder of the lock has not begun to.
--
--   v         1, the version of this form
--   by        SHA-1 of the attempt of the leader, which is secret
--   holder    identity of the leader; empty after a resignation without a next leader
--   token     fencing token of its lease
--   acquired  ms, server clock, beginning of the work
--   renewed   ms, server clock, last renewal
--   lease     ms, duration of the lease after `renewed`
--   metadata  Config.Metadata of the leader, a JSON object of strings
--   released  ms, server clock, resignation of the leader; absent while it leads
--   asked     token of the leader to which `request` is addressed
--   request   request to resign, a JSON object with the operator and the reason
local LEADER_KEPT = 604800000 -- a week

-- announce notifies watchers that the leader changed. The message is a hint, so an ACL
-- that forbids it stops nothing.
local function announce(channel, token)
  redis.pcall('PUBLISH', channel, token)
end

-- renewed stores the time of a renewal in the record of the leadership.
local function renewed(leader)
  redis.pcall('HSET', leader, 'renewed', server_ms())
  redis.pcall('PEXPIRE', leader, LEADER_KEPT)
end

-- record writes the whole record of a leadership that began age ms ago, and returns the time of its beginning, or
-- nil if the write failed. It uses pcall, because a renewal must not fail with the record.
local function record(leader, channel, by, holder, token, age, lease, metadata)
  local now = server_ms()
  local acquired = string.format('%.0f', now - age)
  local done = redis.pcall('HSET', leader, 'v', '1', 'by', redis.sha1hex(by), 'holder', holder, 'token', token,
    'acquired', acquired, 'renewed', now, 'lease', lease, 'metadata', metadata)
  if type(done) == 'table' then
    return nil
  end
  redis.pcall('HDEL', leader, 'released', 'asked', 'request')
  redis.pcall('PEXPIRE', leader, LEADER_KEPT)
  announce(channel, token)
  return acquired
end
