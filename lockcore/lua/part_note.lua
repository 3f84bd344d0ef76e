-- The notes on processes, in the field `!` of `seen`: see part_queue.lua.

local function process_of(attempt)
  return string.match(attempt, '^n%a1:(%w+)%.%w+')
end

-- notes_of returns the field `!`. One call of a script reads it once.
local noted
local function notes_of(seen)
  noted = noted or redis.call('HGET', seen, '!') or ''
  return noted
end

-- clear_note deletes the note on the process of an attempt, which has sent a request.
local function clear_note(seen, attempt)
  if notes_of(seen) == '' then -- this takes less time than gsub
    return
  end
  local rest, found = string.gsub(noted, process_of(attempt) .. ' %-?%d+\n', '')
  noted = rest
  if rest == '' then
    redis.call('HDEL', seen, '!')
  elseif found > 0 then
    redis.call('HSET', seen, '!', rest)
  end
end
