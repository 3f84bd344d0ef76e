-- The record of an election, `leader`: a hash, written only by the holder of the
-- lock, or by the last one while nobody else holds it. Only `asked` and `request` are
-- written by others, see leader_resign.lua.
--
--   v         1, the version of this form
--   by        SHA-1 of the attempt of the leader, which is secret; absent: its term did not begin, and does not count
--   holder    identity of the leader; empty: it has resigned, and there is no next leader
--   token     fencing token of its lease
--   term      how many leaderships there were, this one included
--   acquired  ms, server clock, when it began to lead
--   renewed   ms, server clock, its last renewal
--   lease     ms, how long it leads from `renewed` unless it renews
--   metadata  what the leader says of itself, a JSON object of strings
--   released  ms, server clock, when it resigned; absent while it leads
--   asked     token of the leader that an operator has asked to resign, or absent
--   request   who asks it to, and why, a JSON object
local LEADER_KEPT = 604800000 -- a week: terms count on while somebody leads that often

-- announce notifies watchers that the leader changed. A hint, so that an ACL
-- that forbids it stops nothing.
local function announce(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- record writes down a leadership as a whole. pcall: a renewal must not fail for
-- the record's sake. Answers whether it was written.
local function record(leader, channel, by, holder, token, term, acquired, renewed, lease, metadata)
  redis.pcall('HDEL', leader, 'released', 'asked', 'request')
  local done = redis.pcall('HSET', leader, 'v', '1', 'by', redis.sha1hex(by), 'holder', holder, 'token', token, 'term', term,
    'acquired', acquired, 'renewed', renewed, 'lease', lease, 'metadata', metadata)
  if type(done) == 'table' then
    return false
  end
  redis.pcall('PEXPIRE', leader, LEADER_KEPT)
  announce(channel, token)
  return true
end
