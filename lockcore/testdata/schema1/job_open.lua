-- job_open: make sure that a job has a ledger, keep it alive, tell how it stands.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to there is to be
--                 claimed again
-- ARGV[3] ended   ms, up to here it knows all ticks to have ended; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger lives without being used
--
-- Returns {now ms, last, ok or '', paused or '', fresh '1' or '', freed or '',
--         tick, record, tick, record, …} the pairs being the open runs; fresh:
--         nothing was claimed yet, and nobody knew where to begin; freed: ms,
--         when the last run ended.
--         {0} if the schema is newer than 2.
--
-- While the server keeps its data no caller knows more than the ledger, and
-- nothing is changed. After a loss it mends what it can. A ledger that was set
-- back (failover, old snapshot) is brought forward to what is known to be over,
-- so that this is not run again. One that was begun by somebody who knew nothing,
-- and not used since, begins where the caller says, so that what was open at the
-- loss is not forgotten.
--
-- Twice is safe: what the caller knows it knows for good.
local job, open, runs = KEYS[1], KEYS[2], KEYS[3]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

--@include job

local v, last, born = unpack(redis.call('HMGET', job, 'v', 'last', 'born'))
if tonumber(v or 1) > 2 then
  return {0}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
local now = server_ms()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'v', '1', 'last', last)
elseif after ~= '' then
  local ahead = tonumber(after) - tonumber(last)
  if ahead > 0 and sure == '1' or ahead < 0 and last == born then
    redis.call('HSET', job, 'last', after)
    redis.call('HDEL', job, 'born')
    announce(job, 'mended ' .. after)
  end
end
stay(job, open, runs, retain)
if ended ~= '' then
  for _, tick in ipairs(redis.call('HKEYS', open)) do
    if tonumber(tick) <= tonumber(ended) then
      settle(job, open, runs, keep, tick, read(open, tick), 'unknown', 'it had ended before the server lost data', now)
      announce(job, 'settled ' .. tick)
    end
  end
end
local ok, paused, freed
last, born, ok, paused, freed = unpack(redis.call('HMGET', job, 'last', 'born', 'ok', 'paused', 'freed'))
local fresh = ''
if last == born then
  fresh = '1'
end
local answer = {now, last, ok or '', paused or '', fresh, freed or ''}
for _, text in ipairs(redis.call('HGETALL', open)) do
  answer[#answer + 1] = text
end
return answer
