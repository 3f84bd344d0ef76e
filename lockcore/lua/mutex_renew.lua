-- mutex_renew: extend a lock that is still held by this attempt. internal/lock sends it (kind.go) in batches.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] fence   string, the counter of fencing tokens; absent: it need not be extended yet
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
-- ARGV[3] keep    ms, TTL of the token counter after a grant, with KEYS[2]
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only extends a lock that is mine. It never creates the lock.
-- It cannot shorten the lock either, as the ttl of an attempt never changes.
local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  -- The counter must not expire before the lock, as Inspect reads the token there. Its TTL is never shortened: a
  -- counter ahead of the clock has a longer one. A key of another type is not ours.
  if ARGV[3] and type(redis.pcall('GET', KEYS[2])) == 'string' and redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
  end
  return 1
end
return 0
