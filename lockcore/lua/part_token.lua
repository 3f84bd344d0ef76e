-- next_token(fence): the next fencing token of the name, as a decimal string, and
-- this server's clock in microseconds.
-- A counter that is behind the server's clock in microseconds is set to that: it
-- may be new, lost, or set back with the server's data, as by a failover to a
-- replica that lagged, and what was handed out before is not ahead of the clock.
-- It expires a week later, so that a name used once leaves nothing behind.
local function next_token(fence)
  local token = redis.call('INCR', fence)
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  if token < clock then
    token = clock
    redis.call('SET', fence, string.format('%.0f', token), 'PX', 604800000)
  end
  return string.format('%.0f', token), clock
end
