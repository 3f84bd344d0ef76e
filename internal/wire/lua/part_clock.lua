-- The clock of this server, which a call of a script reads once.

local time -- the reply to TIME

-- server_ms returns the clock in ms.
local function server_ms()
  time = time or redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
