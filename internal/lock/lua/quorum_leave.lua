-- quorum_leave: release the lock of one server of a quorum. quorumKind.Release of package lock returns the request,
-- and quorum.Release counts the answers of all servers.
--
-- KEYS[1] lock    string, the holder's attempt
-- KEYS[2] tomb    string, written to refuse requests of this attempt that arrive later
-- KEYS[3] record  hash of an election, only with ARGV[4]: gets the end of the leader if this attempt wrote it
-- ARGV[1] me      this attempt
-- ARGV[2] tomb    ms, TTL of the tombstone, '0' for none
-- ARGV[3] channel of the messages to waiters, '' if nobody can wait
-- ARGV[4] news    channel of messages about the record, only with KEYS[3]
--
-- Returns 1 the lock was mine and is released, 0 it was not mine.
--
-- Twice is safe: the second call finds no lock of mine, and answers 0. The DEL comes first, so that it
-- works while the server is out of memory.
-- end_record comes from part_ended, which needs part_clock.
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
