-- The clock of this server. One call of a script reads it once.

local time

-- clock returns it as TIME does.
local function clock()
  time = time or redis.call('TIME')
  return time
end

-- server_ms returns it in ms.
local function server_ms()
  return clock()[1] * 1000 + math.floor(clock()[2] / 1000)
end
