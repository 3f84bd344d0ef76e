-- job_open: make sure that a job has a ledger, keep it alive, tell how it stands.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- KEYS[4] live    hash, replica -> alive until
-- KEYS[5] tomb    string, remembers that this replica has started
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to there is to be
--                 claimed again
-- ARGV[3] ended   ms, up to here it knows all ticks to have ended; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger lives without being used
-- ARGV[6] me      this replica; '' if it runs no ticks by a definition
-- ARGV[7] def     what the job is defined as here
-- ARGV[8] gen     the newest generation that was this replica's, '0' if none was
-- ARGV[9] start   '1' if the replica starts
-- ARGV[10] lapse  ms, after which a replica that is not heard of is dead
-- ARGV[11] next   ms, the tick to come as the caller sees it; '' if unknown
-- ARGV[12] bury   ms the tombstone stands
--
-- Returns what part_state says; {11} if the schema is too new for this version.
--
-- While the server keeps its data no caller knows more than the ledger, and only
-- what keeps it alive is changed. After a loss it mends what it can. A ledger that
-- was set back (failover, old snapshot) is brought forward to what is known to be
-- over, so that this is not run again. One that was begun by somebody who knew
-- nothing, and not used since, begins where the caller says, so that what was open
-- at the loss is not forgotten.
--
-- The generation is that of the replica which started last. Replicas of the same
-- definition share it; others stop claiming, until nobody of it is alive.
--
-- Twice is safe: what the caller knows it knows for good, and a start counts once.
local job, open, runs, live, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, gen, start, lapse, next_tick = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]

--@include job
--@include state

local v, last, born, present, present_def = unpack(redis.call('HMGET', job, 'v', 'last', 'born', 'gen', 'def'))
if too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HLEN', live)
redis.call('HLEN', open)
local now, us = server_time()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'last', last)
elseif after ~= '' then
  local ahead = tonumber(after) - tonumber(last)
  if ahead > 0 and sure == '1' or ahead < 0 and last == born then
    redis.call('HSET', job, 'last', after)
    redis.call('HDEL', job, 'born')
    announce(job, 'mended ' .. after)
  end
end
redis.call('HSET', job, 'v', whole(math.max(tonumber(v or 1), SCHEMA)), 'retain', retain)
stay(job, open, runs, retain)
if ended ~= '' then
  for _, tick in ipairs(redis.call('HKEYS', open)) do
    if tonumber(tick) <= tonumber(ended) then
      settle(job, open, runs, keep, tick, read(open, tick), 'unknown', 'it had ended before the server lost data', now)
      announce(job, 'settled ' .. tick)
    end
  end
end

local replicas, mine = alive(live, now), '1'
if me ~= '' then
  if present_def ~= def then
    present = tonumber(present or 0)
    local starts = start == '1' and redis.call('SET', tomb, 'started', 'NX', 'PX', ARGV[12])
    if starts or gen > present or replicas == 0 then
      redis.call('HSET', job, 'gen', whole(math.max(present + 1, gen)), 'def', def)
      redis.call('DEL', live)
      replicas = 0
      announce(job, 'generation')
    else
      mine = ''
    end
  end
  if mine == '1' then
    if redis.call('HSET', live, me, whole(now + tonumber(lapse))) == 1 then
      replicas = replicas + 1
    end
    redis.call('PEXPIRE', live, lapse)
  end
end
if mine == '1' and next_tick ~= '' then
  redis.call('HSET', job, 'next', next_tick)
end
return state(job, open, us, replicas, mine)
