-- owned_renew: extend an entry that this attempt still has. internal/lock sends it (kind.go) in batches.
--
-- KEYS[1] lock    sorted set, see part_entry.lua
-- KEYS[2] size    string, of a Semaphore; absent: it need not be extended yet
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms
-- ARGV[3] keeps   1 with KEYS[2], otherwise absent
--
-- Returns 1 extended to ttl from now, 0 not mine (any more): lost.
--
-- Twice is safe: it only moves the end of an entry that is mine, and never creates one.
-- The end becomes earlier only if the server's clock was set back.
local lock, me = KEYS[1], ARGV[1]

--@include clock
--@include entry

tag = string.sub(me, 1, 3)
local mode, owner = parts_of(me)
local now = server_ms()
local till = now + tonumber(ARGV[2])
local score = redis.pcall('ZSCORE', lock, me)
local mine = type(score) == 'string' and end_of(score) or now - 1
if mine >= now and mine <= till and has_one(lock, mode) then
  redis.call('PEXPIREAT', lock, whole(till))
  redis.call('ZADD', lock, 'XX', score_of(tonumber(score) >= WRITES and 'w' or 'r', till), me)
else
--@include owned
  local s = look(lock, owner, me)
  if not s or not s.mine or s.mine < now then
    return 0
  end
  survey(lock, s)
  extend(lock, s, me, till)
end
if ARGV[3] and size_of(redis.pcall('GET', KEYS[2])) then
  redis.call('PEXPIRE', KEYS[2], WEEK)
end
return 1
