-- job_open: make sure that a job has a ledger, keep it alive, tell how it stands.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- KEYS[4] live    hash, replica -> alive until
-- KEYS[5] tomb    string, the order that this replica's start was given
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to there is to be
--                 claimed again
-- ARGV[3] ended   ms, up to here it knows all ticks to have ended; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger lives without being used
-- ARGV[6] me      this replica; '' if it runs no ticks by a definition
-- ARGV[7] def     what the job is defined as here
-- ARGV[8] own     the order of its definition, as it was told last; '0' if it
--                 never was
-- ARGV[9] start   '1' if the replica starts: it has had no answer yet
-- ARGV[10] lapse  ms, after which a replica that is not heard of is dead
-- ARGV[11] next   ms, the tick to come as the caller sees it; '' if unknown
-- ARGV[12] bury   ms the tombstone stands
-- ARGV[13] sched  what names the job's ticks here; '' if that is not known
-- ARGV[14] trust  ms, up to when the replica may take others for dead; '0' if it
--                 was away itself
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
-- A start of another definition than the one that acts gives its own the highest
-- order, and it acts. Replicas of the same definition share the order; others stop
-- claiming. An older one acts while nobody of that one is alive, and under its own
-- order, so that one of a higher order takes the job back when it looks. Who was away
-- itself does not take the others for dead: they may come back as it did.
--
-- If the one that takes over names the ticks otherwise, its ticks begin now, as it
-- cannot know which of the former's were missed. One of those that is known to have
-- come due and not to be accounted for is written down as skipped. After a loss it is
-- not the ledger that says where the ticks go on, but who remembers.
--
-- Twice is safe: what the caller knows it knows for good, a start is given one order,
-- and the second time the definition that takes over has done so.
local job, open, runs, live, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, own, start, lapse, next_tick = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
local sched, trust = ARGV[13], tonumber(ARGV[14])

--@include job
--@include state

local v, last, born, present, present_def, top, former, former_of, due, coming = unpack(redis.call('HMGET', job,
  'v', 'last', 'born', 'gen', 'def', 'top', 'sched', 'schedof', 'due', 'next'))
if too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HLEN', live)
redis.call('HLEN', open)
local given = redis.call('GET', tomb)
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
redis.call('HSET', job, 'v', whole(math.max(tonumber(v or SCHEMA), SCHEMA)), 'retain', retain)
stay(job, open, runs, retain)
if ended ~= '' then
  for _, tick in ipairs(redis.call('HKEYS', open)) do
    if tonumber(tick) <= tonumber(ended) then
      settle(job, open, runs, keep, tick, read(open, tick), 'unknown', 'it had ended before the server lost data', now)
      announce(job, 'settled ' .. tick)
    end
  end
end

-- A tick that has come due and is not accounted for, if one is known.
local accounted = tonumber(redis.call('HGET', job, 'last'))
if not due or tonumber(due) <= accounted then
  due = coming
end
if due and (tonumber(due) <= accounted or tonumber(due) > now) then
  due = nil
end

local replicas, mine, dropped = alive(live, now), '1', ''
if me ~= '' then
  present = tonumber(present or 0)
  top = tonumber(top or 0)
  local lost = own > top -- the server has forgotten that order
  if present_def == def then
    own = present
  else
    if start == '1' then
      own = tonumber(given) or top + 1
    end
    if own > present or replicas == 0 and now <= trust then
      redis.call('HSET', job, 'gen', whole(own), 'def', def, 'top', whole(math.max(top, own)))
      redis.call('DEL', live)
      replicas = 0
      if former and former_of == present_def and sched ~= '' and sched ~= former and not lost then
        if due then
          skip(job, runs, keep, whole(accounted), due, due, '1', 'rescheduled')
          dropped, due = due, nil
        end
        account(job, whole(now))
      end
      announce(job, 'generation')
    else
      mine = ''
    end
  end
  if start == '1' then
    redis.call('SET', tomb, whole(own), 'PX', ARGV[12])
  end
  if mine == '1' then
    if redis.call('HSET', live, me, whole(now + tonumber(lapse))) == 1 then
      replicas = replicas + 1
    end
    redis.call('PEXPIRE', live, lapse)
    if sched ~= '' and former_of ~= def then
      redis.call('HSET', job, 'sched', sched, 'schedof', def)
    end
  end
end
if mine == '1' and next_tick ~= '' then
  redis.call('HSET', job, 'next', next_tick)
  if due then
    redis.call('HSET', job, 'due', due)
  end
end
return state(job, open, us, replicas, mine, own, dropped)
