-- mutex_renew: extend a lock that is still held by this attempt.
--
-- KEYS[1] lock    string, the holder's attempt
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only moves the end of what is mine. It never creates the
-- lock. It cannot shorten it either, as an attempt has one ttl for life.
local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
