-- job_skip: account for ticks that will not be run, and say why.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- ARGV[1] first   ms, the first tick skipped
-- ARGV[2] newest  ms, the last tick skipped; it becomes the newest accounted
-- ARGV[3] count   how many ticks that is
-- ARGV[4] reason  why, one word
-- ARGV[5] last    ms, the newest accounted tick as the caller knows it
-- ARGV[6] keep    ended runs to keep
--
-- Returns {1} written down
--         {3} accounted for before
--         {4, ms} not due yet on this server's clock
--         {8, last} the caller's view is old
--         {10} there is no ledger: open it first
--
-- Twice is safe: the second time the ticks are accounted for.
local job, runs = KEYS[1], KEYS[2]
local first, newest, count, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include job

local accounted = redis.call('HGET', job, 'last')
if not accounted then
  return {10}
end
if tonumber(newest) <= tonumber(accounted) then
  return {3}
end
if accounted ~= ARGV[5] then
  return {8, accounted}
end
local now = server_ms()
if tonumber(newest) > now then
  return {4, tonumber(newest) - now}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
account(job, newest)
skip(job, runs, ARGV[6], accounted, first, newest, count, reason)
announce(job, 'settled ' .. newest)
return {1}
