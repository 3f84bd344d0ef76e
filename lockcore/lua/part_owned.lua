-- A lock with owners: reentrant (kind `nx1`) or read-write (`ns1`). The hash `lock`:
--
--   kind       `nx1` or `ns1`
--   writer     the owner that writes; one that has stopped may still stand here
--   o:<owner>  its token and its entries, a line each: `<token>`, then
--              `<mode w|r><until, ms on this server's clock> <attempt>`
--
-- An entry is one attempt's and ends by itself. The key ends with its last entry, to
-- the millisecond: while it exists somebody holds the lock, so that who only asks
-- that need not look at every entry. An attempt is
-- `<kind>:<process>.<number>.<t|u>.<mode w|r>/<owner> <identity>`.

local function parts_of(attempt)
  return string.match(attempt, '^(n%a1):%w+%.%w+%.%a%.([wr])/([^ ]+) ')
end

-- The entries of an owner that have not ended: its token, a list of {mode, until,
-- attempt}, and whether one of them writes. No entries, no token.
local function entries_of(value, now)
  local list, writes = {}, false
  if not value then
    return nil, list, writes
  end
  local token, rest = string.match(value, '^(%d+)\n(.*)$')
  for mode, till, attempt in string.gmatch(rest or '', '([wr])(%d+) ([^\n]+)\n') do
    till = tonumber(till)
    if till >= now then
      list[#list + 1] = {mode, till, attempt}
      writes = writes or mode == 'w'
    end
  end
  return #list > 0 and token or nil, list, writes
end

local function end_at(lock, till)
  return redis.pcall('PEXPIREAT', lock, string.format('%.0f', till))
end

-- put writes the entries of an owner, and leaves no key without any.
local function put(lock, owner, token, list)
  if #list == 0 then
    redis.call('HDEL', lock, 'o:' .. owner)
    if redis.call('HGET', lock, 'writer') == owner then
      redis.call('HDEL', lock, 'writer')
    end
    if redis.call('HLEN', lock) == 1 then
      redis.call('DEL', lock)
    end
    return
  end
  local lines, writes = {token}, false
  for i, entry in ipairs(list) do
    lines[i + 1] = entry[1] .. string.format('%.0f', entry[2]) .. ' ' .. entry[3]
    writes = writes or entry[1] == 'w'
  end
  redis.call('HSET', lock, 'o:' .. owner, table.concat(lines, '\n') .. '\n')
  if writes then
    redis.call('HSET', lock, 'writer', owner)
  elseif redis.call('HGET', lock, 'writer') == owner then
    redis.call('HDEL', lock, 'writer')
  end
end

-- add gives an attempt an entry until then. A key must not stay without an end,
-- although a script is not rolled back: an ACL may forbid PEXPIREAT.
local function add(lock, kind, mode, owner, attempt, token, list, till, now)
  list[#list + 1] = {mode, till, attempt}
  redis.call('HSET', lock, 'kind', kind)
  put(lock, owner, token, list)
  local left = redis.call('PTTL', lock)
  if now + left < till then
    local done = end_at(lock, till)
    if type(done) == 'table' then
      if left < 0 then
        redis.call('DEL', lock)
      end
      error(done.err)
    end
  end
end
