-- record_put: write a record if it has not changed since the writer read it. Sent by Record.Put of package cas.
--
-- KEYS[1] record   string, 'nr1 <version> <value>'; absent: there is no record
-- ARGV[1] me       version of this write; no other write ever has it
-- ARGV[2] value    bytes
-- ARGV[3] keep     ms, TTL of the record after this write
-- ARGV[4] seen     versions, each with a space before and after it. The record must have
--                  one of them; '-' means that there is no record
--
-- Returns 1 written, 0 the record has another version, -1 the record has a newer format,
-- -2 the key is not a record. Only 1 changes the record.
--
-- Twice is safe: a version is written once. If the record already has it, the reply is 1
-- and nothing changes. If another writer has replaced the record since, the reply is 0.
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
-- One command sets value and TTL, so both are set or neither.
redis.call('SET', record, 'nr1 ' .. me .. ' ' .. value, 'PX', keep)
return 1
