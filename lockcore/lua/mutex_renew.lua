-- mutex_renew: extend a lock that is still held by this attempt.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] fence   string, the counter of fencing tokens
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
-- ARGV[3] keep    ms, for which the counter of tokens outlives a grant; it outlives this
--                 renewal by half of it
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only moves the end of what is mine. It never creates the
-- lock. It cannot shorten it either, as an attempt has one ttl for life.
local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  -- Inspect reads the token there. A counter that is ahead of the clock is kept for longer.
  if redis.call('PTTL', KEYS[2]) < ARGV[3] / 2 then
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
  end
  return 1
end
return 0
