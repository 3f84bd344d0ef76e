-- next_token(fence): the next fencing token of the name, as a decimal string, and
-- this server's clock in microseconds.
-- A token is that clock, or one more than the last token if the clock is not ahead of
-- it: so it is greater than all that came before while the counter is kept, and, if
-- that is new, lost, or set back with the server's data, as by a failover to a replica
-- that lagged, while the clock is not set back as well.
-- The counter expires after a week, so that a name used once leaves nothing behind;
-- one that is ahead of the clock a week after the clock has come to it. If it ended
-- before, the next token would be taken from the clock, and be smaller.
local function next_token(fence)
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local token = string.format('%.0f', clock)
  local last = tonumber(redis.call('SET', fence, token, 'PX', 604800000, 'GET'))
  if last and last >= clock then
    token = string.format('%.0f', last + 1)
    redis.call('SET', fence, token, 'PX', string.format('%.0f', 604800000 + (last - clock) / 1000))
  end
  return token, clock
end
