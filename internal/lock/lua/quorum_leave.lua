-- quorum_leave: release the lock of one server of a quorum.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] tomb    string, written to refuse requests of this attempt that arrive later
-- KEYS[3] record  hash of an election: its end is written there if this attempt wrote it; absent: there is none
-- ARGV[1] me      this attempt
-- ARGV[2] tomb    ms, TTL of the tombstone, '0' for none
-- ARGV[3] channel of the messages to waiters, '' for none
-- ARGV[4] news    channel of messages about the record, with KEYS[3]
--
-- Returns 1 the lock was mine and is released, 0 it was not mine.
--
-- Twice is safe: the second time nothing is mine. The DEL comes first, so that it works
-- while the server is out of memory.
local lock, tomb = KEYS[1], KEYS[2]
local me, keep, channel = ARGV[1], ARGV[2], ARGV[3]
local released = 0
if redis.pcall('GET', lock) == me then
  redis.call('DEL', lock)
  released = 1
  if channel ~= '' then
    redis.pcall('PUBLISH', channel, '')
  end
end
if KEYS[3] then
--@include clock
--@include ended
  end_record(KEYS[3], me, ARGV[4])
end
if keep ~= '0' then
  redis.call('SET', tomb, '1', 'PX', keep)
end
return released
