-- The clock of this server. These functions read it once in a call of a script.

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
