-- For scripts of one server of a quorum. marker: a hash with what the server knows about the quorum.

-- run_id() returns a text that is new each time the server starts.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- refusal(marker, list, ttl) returns nil if this server may grant a lock, and otherwise the answer with
-- the reason: {8} it may have lost data, and has not been let in again; {9, list} it belongs to
-- another list of servers; {10, left ms} it grants nothing for that time, because locks
-- that it has lost may still be held; {11, longest ms} the ttl is longer than the longest one.
-- It also returns the run id, the clock (µs), and the greatest committed token.
local function refusal(marker, list, ttl)
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local run = run_id()
  local m = redis.call('HMGET', marker, 'run', 'list', 'after', 'longest', 'top')
  local no
  if m[1] ~= run then
    no = {8}
  elseif m[2] ~= list then
    no = {9, m[2]}
  elseif clock < tonumber(m[3]) * 1000 then
    no = {10, m[3] - math.floor(clock / 1000)}
  elseif tonumber(ttl) > tonumber(m[4]) then
    no = {11, tonumber(m[4])}
  end
  return no, run, clock, tonumber(m[5])
end
