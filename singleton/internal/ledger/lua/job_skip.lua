-- job_skip: record ticks that will not run, and the reason.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- ARGV[1] first   ms, the first tick skipped
-- ARGV[2] newest  ms, the last tick skipped; it becomes the newest accounted
-- ARGV[3] count   how many ticks that is
-- ARGV[4] reason  why, one word
-- ARGV[5] last    ms, the newest accounted tick as the caller knows it
-- ARGV[6] keep    ended runs to keep
-- ARGV[7] def     the fingerprint of the caller's definition
-- ARGV[8] channel the channel of the job
--
-- Returns {1} recorded
--         {3, '', ''} accounted for before
--         {4, µs} not due for this long, by the server's clock
--         {6} paused
--         {8, last} the caller's state is old
--         {13} another definition acts
--         or the reply of part_ledger: after {10}, open it first
--
-- If the newest entry of the history has the ticks up to `last`, skipped for the same reason, it is extended. An entry
-- of a run has no `last`. A damaged entry is not changed.
--
-- Twice is safe: the second time the ticks are accounted for.
local job, runs = KEYS[1], KEYS[2]
local first, newest, count, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include clock
--@include record
--@include end
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
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HSET', job, 'last', newest)
local _, before = pcall(cjson.decode, redis.call('LRANGE', runs, 0, 0)[1])
if type(before) == 'table' and before.error == reason and before.last == last then
  redis.call('LTRIM', runs, 1, -1)
  first = before.tick
  count = whole(tonumber(count) + tonumber(before.count))
end
log(job, runs, ARGV[6], {tick = first, last = newest, count = count, outcome = 'skipped', error = reason})
announce(ARGV[8], 'ended ' .. newest)
return {1}
