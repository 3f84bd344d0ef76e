-- next_token(fence): the next fencing token of the name, as a decimal string.
-- A counter below 10^14 is new or was lost (or could not be seeded the last
-- time, for lack of rights): it starts again at the server's clock in
-- microseconds, which is above every token handed out before it, and expires a
-- week after that seeding, whatever its use, so that a name used once leaves
-- nothing behind. The next seeding is larger again.
local function next_token(fence)
  local token = redis.call('INCR', fence)
  if token < 1e14 then
    local time = redis.call('TIME')
    token = tonumber(time[1]) * 1000000 + tonumber(time[2])
    redis.call('SET', fence, string.format('%.0f', token), 'PX', 604800000)
  end
  return string.format('%.0f', token)
end
