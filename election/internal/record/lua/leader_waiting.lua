-- leader_waiting: note at one server of a quorum that a candidate waits, and return all.
--
-- KEYS[1] waiting   hash, candidate -> since ms, until ms, identity
-- ARGV[1] id        of the candidate; '' only returns the others
-- ARGV[2] keep      ms for which it is listed; 0: it waits no longer
-- ARGV[3] identity  to be shown
--
-- Returns {1, id, value, id, value, …}: the candidates that are listed.
--
-- Twice is safe: the time since which a candidate waits stays.
local waiting, id, keep, identity = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

--@include clock

local now = server_ms()
if id ~= '' and keep == 0 then
  redis.call('HDEL', waiting, id)
elseif id ~= '' then
  local since = string.match(redis.call('HGET', waiting, id) or '', '^%d+') or string.format('%.0f', now)
  redis.call('HSET', waiting, id, since .. ' ' .. string.format('%.0f', now + keep) .. ' ' .. identity)
  redis.call('PEXPIRE', waiting, keep)
end
local answer, all = {1}, redis.call('HGETALL', waiting)
for i = 1, #all, 2 do
  if now < tonumber(string.match(all[i + 1], '^%d+ (%d+) ')) then
    answer[#answer + 1] = all[i]
    answer[#answer + 1] = all[i + 1]
  elseif id ~= '' then
    redis.call('HDEL', waiting, all[i])
  end
end
return answer
