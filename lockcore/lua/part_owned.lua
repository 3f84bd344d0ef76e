-- A lock with owners: reentrant (kind `nx1`) or read-write (`ns1`). The hash `lock`:
--
--   kind       `nx1` or `ns1`
--   end        ms on this server's clock, of the last entry and of the key: while it
--              lies ahead somebody holds the lock, so that who only asks that need
--              not look at every entry. It is kept here, as PTTL and TIME read the
--              clock one after the other: a sum of both is short by what lies between,
--              and the key would end before its last entry
--   writer     the owner that writes; one that has stopped still stands here
--   o:<owner>  its token and its entries, a line each: `<token>`, then
--              `<mode w|r><until, ms on this server's clock> <attempt>`
--
-- An entry is one attempt's and ends by itself. An attempt is
-- `<kind>:<process>.<number>.<t|u>.<mode w|r>/<owner> <identity>`.

local function parts_of(attempt)
  return string.match(attempt, '^(n%a1):%w+%.%w+%.%a%.([wr])/([^ ]+) ')
end

-- The entries of an owner that have not ended: its token, a list of {mode, until,
-- attempt}, and until when it writes (0: it does not). No entries, no token.
local function entries_of(value, now)
  local list, writes = {}, 0
  local token, rest = string.match(value or '', '^(%d+)\n(.*)$')
  for mode, till, attempt in string.gmatch(rest or '', '([wr])(%d+) ([^\n]+)\n') do
    till = tonumber(till)
    if till >= now then
      list[#list + 1] = {mode, till, attempt}
      if mode == 'w' then
        writes = math.max(writes, till)
      end
    end
  end
  return #list > 0 and token or nil, list, writes
end

-- read tells how a lock stands for an owner: {owner, ends, writer, token, list,
-- writes}; ends is false if the lock is free. nil: the key is not of this kind.
local function read(lock, kind, owner, now)
  local got = redis.pcall('HMGET', lock, 'kind', 'end', 'writer', 'o:' .. owner)
  local ends = got[1] == kind and tonumber(got[2])
  if not ends and redis.call('EXISTS', lock) == 1 then
    return nil
  end
  local s = {owner = owner, ends = ends, writer = got[3]}
  s.token, s.list, s.writes = entries_of(got[4], now)
  return s
end

local function text_of(token, list)
  local lines = {token}
  for i, entry in ipairs(list) do
    lines[i + 1] = entry[1] .. string.format('%.0f', entry[2]) .. ' ' .. entry[3]
  end
  return table.concat(lines, '\n') .. '\n'
end

-- store writes an owner's entries, of which one lasts until then, into a lock that
-- exists. The key's end comes first: that works while the server is out of memory,
-- and what a script writes after it does, too. If the server stood still since it told
-- the time, that end may be over and the key gone with it: then it goes again, as it
-- would be left without a kind and an end.
local function store(lock, s, till)
  local ends = string.format('%.0f', math.max(s.ends, till))
  redis.call('PEXPIREAT', lock, ends)
  local fields = {'end', ends, 'o:' .. s.owner, text_of(s.token, s.list)}
  if s.list[#s.list][1] == 'w' then -- who comes to write does so by its newest entry
    fields[5], fields[6] = 'writer', s.owner
  end
  if redis.call('HSET', lock, unpack(fields)) == #fields / 2 then -- all are new
    redis.call('DEL', lock)
  end
end

-- found writes the first entry of a lock that is free. No key must stay without an
-- end, although a script is not rolled back: an ACL may forbid PEXPIREAT.
local function found(lock, kind, owner, token, mode, till, attempt)
  local ends, text = string.format('%.0f', till), text_of(token, {{mode, till, attempt}})
  if mode == 'w' then
    redis.call('HSET', lock, 'kind', kind, 'end', ends, 'writer', owner, 'o:' .. owner, text)
  else
    redis.call('HSET', lock, 'kind', kind, 'end', ends, 'o:' .. owner, text)
  end
  local done = redis.pcall('PEXPIREAT', lock, ends)
  if type(done) == 'table' then
    redis.call('DEL', lock)
    error(done.err)
  end
end
