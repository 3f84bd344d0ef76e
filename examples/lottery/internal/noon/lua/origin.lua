-- origin: return the mark that counts, and store it if the server has another mark. Sent by Origin.ask of package noon.
--
-- KEYS[1] record   string, a mark: '<rank> <database>', see origin.go
-- ARGV[1] known    the mark that the caller knows; '' if none
-- ARGV[2] database  of the caller
-- ARGV[3] accept   '1': an operator says that this database has the draws
-- ARGV[4] keep     ms, TTL of the mark after it was stored
--
-- Returns {mark, age of its claim in µs}; a mark that an operator has accepted is older than any claim.
--
-- Twice is safe: a mark is replaced only by a higher one, and a second run returns the same database.
local record = KEYS[1]
local known, database, accept, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function rank(mark)
  return tonumber(string.match(mark, '^%S+') or '') or -math.huge
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.call('GET', record)
local mark = stored or ''
if rank(known) > rank(mark) then
  mark = known
end
if accept == '1' then
  mark = string.format('%.0f %s', math.max(now, rank(mark) + 1), database)
elseif mark == '' then
  mark = string.format('%.0f %s', -now, database)
end
if mark ~= stored or known == '' then
  redis.call('SET', record, mark, 'PX', keep)
end
return {mark, now + rank(mark)}
