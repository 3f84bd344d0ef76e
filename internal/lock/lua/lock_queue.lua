-- lock_queue: return the attempts that wait for a mutex, next holder first.
--
-- KEYS[1] queue   sorted set, attempts in order of arrival
-- KEYS[2] seen    hash, attempt -> alive until (ms, server clock)
--
-- Returns {attempt, score, attempt, score, …} of the attempts whose alive time has
--         not passed; score: the time it joined (ms), or the negative time of its
--         promotion.
--
-- Twice is safe: it only reads.
local queue, seen = KEYS[1], KEYS[2]

--@include clock
--@include queue

local now = server_ms()
local alive = {}
for _, text in ipairs(redis.call('HGETALL', seen)) do
  alive[#alive + 1] = text
end
local til = {}
for i = 1, #alive, 2 do
  til[alive[i]] = tonumber(alive[i + 1])
end
local list, answer = redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES'), {}
for i = 1, #list, 2 do
  if (til[list[i]] or 0) > now then
    answer[#answer + 1] = list[i]
    answer[#answer + 1] = list[i + 1]
  end
end
return answer
