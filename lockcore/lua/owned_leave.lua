-- owned_leave: give up an entry, or the place in line, and serve who is next.
--
-- KEYS[1] lock    sorted set, see part_owned.lua
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, written to refuse requests of this attempt that are
--                 still under way
-- ARGV[1] me      this attempt
-- ARGV[2] bury    ms the tombstone stands, '0' for none
-- ARGV[3] keep    ms, for which the counter of tokens outlives a grant
--
-- Returns 1 + n   the entry was mine and is gone; n others of my owner are left
--         -n      it was not mine; my owner has n entries
--
-- Twice is safe: the second time nothing is mine. What deletes comes first, so that
-- it works while the server is out of memory.
local lock, fence, queue, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[1]

--@include token
--@include owned
--@include line
--@include owners

local kind, _, owner = parts_of(me)
local now = server_ms()
local s = look(lock, kind, owner, me)
local mine, shorter = s and s.mine and s.mine >= now, false
if mine and s.count == 1 and redis.call('ZCARD', lock) == 4 then
  redis.call('DEL', lock) -- nobody else has an entry
  s.count = 0
elseif s then
  s = read(lock, kind, owner, now, me, true)
  mine = s.mine
  shorter = mine and strike(lock, s, me)
end
local first = redis.call('ZRANGE', queue, 0, 0)[1]
if first then
  drop(queue, seen, me)
  heard(seen, me)
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[2])
end
if first and s then
  serve(lock, fence, ARGV[3], queue, seen, kind, false, 0, now, not shorter and first)
elseif first == me then
  tell_head(lock, queue) -- of another kind's lock, or the line of one
end
if mine then
  return 1 + s.count
end
return s and -s.count or 0
