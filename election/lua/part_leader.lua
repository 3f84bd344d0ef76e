-- The record of an election, `leader`: a hash, written only by the holder of the
-- lock, or by the release of the last one. Only `asked` and `request` are
-- written by others, see leader_resign.lua. It counts while `by` is the SHA-1 of the lock's value: otherwise
-- its leader no longer leads, and a holder of the lock has not begun to.
--
--   v         1, the version of this form
--   by        SHA-1 of the attempt of the leader, which is secret
--   holder    identity of the leader; empty: it has resigned, and there is no next leader
--   token     fencing token of its lease
--   acquired  ms, server clock, when it began to lead
--   renewed   ms, server clock, its last renewal
--   lease     ms, how long it leads from `renewed` unless it renews
--   metadata  what the leader says of itself, a JSON object of strings
--   released  ms, server clock, when it resigned; absent while it leads
--   asked     token of the leader that an operator has asked to resign, or absent
--   request   who asks it to, and why, a JSON object
local LEADER_KEPT = 604800000 -- a week

-- announce notifies watchers that the leader changed. A hint, so that an ACL
-- that forbids it stops nothing.
local function announce(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- renewed writes down the last renewal of a leadership that the record has.
local function renewed(leader)
  redis.pcall('HSET', leader, 'renewed', server_ms())
  redis.pcall('PEXPIRE', leader, LEADER_KEPT)
end

-- record writes down a leadership as a whole. age: ms since it began. pcall: a renewal must not fail for
-- the record's sake. Returns when it began, nil if it was not written.
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
