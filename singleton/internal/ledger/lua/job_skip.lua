-- job_skip: record ticks that will not run, and the reason. Ledger.Skip sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- ARGV[1] first   ms, the first skipped tick
-- ARGV[2] newest  ms, the last skipped tick: it becomes the newest accounted tick
-- ARGV[3] count   how many ticks are skipped
-- ARGV[4] reason  why, one word
-- ARGV[5] known   ms, the newest accounted tick that the caller has read
-- ARGV[6] keep    entries of the history to keep
-- ARGV[7] def     fingerprint of the caller's definition
-- ARGV[8] channel of the job
--
-- Returns {1} recorded
--         {3, '', ''} `newest` is accounted for already. job_claim uses the two empty values
--         {4, µs} `newest` is not due for this long
--         {6} paused
--         {8, last} the newest accounted tick is last, not `known`
--         {13} another definition acts: replicas of this one skip nothing
--         or the reply of part_ledger. After {10}, the caller must send job_open
--
-- If the newest entry of the history has the same reason, and ends at the newest accounted tick, it is extended.
-- Entries of runs have no last tick. A damaged entry is not extended.
--
-- Twice is safe: the second time the ticks are accounted for, and the answer is {3}.
local job, runs = KEYS[1], KEYS[2]
local first, newest, count, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- From finish: announce, add_entry. From ledger: last, paused, acting.
--@include clock
--@include record
--@include finish
--@include job

--@include ledger

if acting ~= ARGV[7] then
  return {13}
end
if tonumber(newest) <= tonumber(last) then
  return {3, '', ''}
end
if paused then
  return {6}
end
if last ~= ARGV[5] then
  return {8, last}
end
local now, us = server_time()
if tonumber(newest) > now then
  return {4, tonumber(newest) * 1000 - us}
end
redis.call('LLEN', runs) -- a key of a wrong type fails here, before the first write
redis.call('HSET', job, 'last', newest)
local _, before = pcall(cjson.decode, redis.call('LRANGE', runs, 0, 0)[1])
if type(before) == 'table' and before.error == reason and before.last == last then
  redis.call('LTRIM', runs, 1, -1)
  first = before.tick
  count = whole(tonumber(count) + tonumber(before.count))
end
add_entry(job, runs, ARGV[6], {tick = first, last = newest, count = count, outcome = 'skipped', error = reason})
announce(ARGV[8], 'ended ' .. newest)
return {1}
