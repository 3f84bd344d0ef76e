-- job_raise: give a run that is held a new token, above one that a resource has seen.
--
-- KEYS[1] open    hash, tick -> run that has not ended
-- KEYS[2] fence   string, the counter of fencing tokens
-- ARGV[1] me      this run
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_job
-- ARGV[3] seen    the token that the resource has seen
--
-- Returns {1, token}  the run's token, which is above it
--         {0}         the run is no longer held
--
-- The counter is above `seen` from here on, and so are the tokens of later claims.
--
-- Twice is safe: a run whose token is above it keeps its token.
local open, fence, me, tick, seen = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

--@include clock
--@include token
--@include job

local record = read(open, tick, (server_time()))
if not record or record.run ~= me then
  return {0}
end
if tonumber(record.token) > tonumber(seen) then
  return {1, record.token}
end
if (tonumber(redis.call('GET', fence)) or 0) < tonumber(seen) then
  redis.call('SET', fence, seen)
end
record.token = next_token(fence)
redis.call('HSET', open, tick, cjson.encode(record))
return {1, record.token}
