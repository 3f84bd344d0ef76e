-- record_put: write a record if it is still what the writer has seen.
--
-- KEYS[1] record   string, 'nr1 <version> <value>'; absent: there is none
-- ARGV[1] me       version of this write, which no other write ever has
-- ARGV[2] value    bytes
-- ARGV[3] keep     ms, how long the record outlives this write
-- ARGV[4] seen     versions with a space before and behind each: the record must
--                  have one of them; '-' is that there is none
--
-- Returns 1 written, 0 the record is another than what was seen, -1 the record is
-- of a newer version, -2 the key is no record: nothing was changed.
--
-- Twice is safe: a version is written once. A record that has it is told to be
-- written again, and stays; if somebody else has written since, it is another.
local record = KEYS[1]
local me, value, keep, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local found = redis.pcall('GET', record)
if type(found) == 'table' then
  return -2
end
local version = '-'
if found then
  local form
  form, version = string.match(found, '^nr(%d+) (%S+) ')
  if not form then
    return -2
  elseif form ~= '1' then
    return -1
  end
end
if version == me then
  return 1
end
if not string.find(seen, ' ' .. version .. ' ', 1, true) then
  return 0
end
-- One command for value and TTL: nothing can be half done.
redis.call('SET', record, 'nr1 ' .. me .. ' ' .. value, 'PX', keep)
return 1
