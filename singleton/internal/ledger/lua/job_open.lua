-- job_open: create the ledger of a job if there is none, keep it alive, return its state.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- KEYS[4] tomb    string, the order that this replica's start got
-- KEYS[5] defs    list, changes of the schedule
-- KEYS[6] acts    list, what operators have done
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to `after` may be claimed
--                 again
-- ARGV[3] ended   ms, the caller knows that all ticks up to here have ended, except for
--                 reruns; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger is kept without being used
-- ARGV[6] me      this replica; '' if it runs no ticks by a definition
-- ARGV[7] def     the fingerprint of the job's definition in the caller
-- ARGV[8] own     the order of that definition in the last reply; '0' if there was none
-- ARGV[9] start   '1' if the replica starts and has not received a reply yet
-- ARGV[10] next   ms, the next tick as the caller computes it; '' if unknown
-- ARGV[11] tomb   ms, TTL of the tombstone
-- ARGV[12] sched  the fingerprint of the schedule in the caller; '' if unknown
-- ARGV[13] trust  ms, until when the replica may consider others dead; '0' if it was
--                 away itself
-- ARGV[14] spec   the schedule in a form that a later version can read; '' if unknown
-- ARGV[15] upto   ms, until when the caller has counted the due ticks of the former
--                 schedule; '' if it has not
-- ARGV[16] seen   ms, the newest accounted tick on which that count is based
-- ARGV[17] first  ms, the first such tick; '' if there is none
-- ARGV[18] newest ms, the last one
-- ARGV[19] count  how many
-- ARGV[20] control  the newest pause or resume that the caller knows, as in `acts`; '' for none
-- ARGV[21] channel  the channel of the job
--
-- Returns the reply of part_state; {11} if the schema is too new for this version.
--
-- While the server keeps its data, no caller knows more than the ledger, and only the TTLs
-- change. After a loss of data the script repairs what it can. A ledger that was set back
-- (failover, old snapshot) is moved forward to the ticks that are known to have ended, so
-- that they do not run again. A ledger that was created by a replica without knowledge, and
-- not used since, begins where the caller says, so that ticks that were open at the loss
-- are not forgotten. The newest pause or resume that a replica knows is carried out again, unless
-- the ledger has a newer one. A new ledger is announced, so that all replicas look and say what
-- they know. If `open` alone was evicted, its runs are opened again, as if their
-- holders had died in the first attempt.
--
-- When a replica with another definition than the acting one starts, its definition gets
-- the highest order. It acts once one of its replicas has been alive for a while and so is
-- fit. Until then the acting definition continues. A definition that has taken over is on
-- trial until it has ended a run and has acted for a longer time. If all its fit replicas
-- leave or die before that, an older definition acts again, under its own order, and the
-- next proof takes four times as long. If no other replica is fit, a replica acts at once.
-- All replicas of a proven definition are fit at once. A replica that was away itself does
-- not consider the others dead, as they may come back, too.
--
-- A definition that takes over with another schedule first reports the ticks of the former
-- schedule that came due and are not accounted for, up to an instant in the past. They are
-- recorded as skipped, and its own ticks begin after that. If a tick was claimed since the count, no
-- other one is claimed for a moment, so that the next count is not late as well. After a loss of data, the replica
-- that remembers the last tick decides where the ticks continue, not the ledger.
--
-- Twice is safe: the caller's knowledge does not change, a start gets one order, and the
-- second time the definition has already taken over.
local job, open, runs, tomb, defs, deeds = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, own, start, next_tick = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10]
local sched, trust, spec, upto, control = ARGV[12], tonumber(ARGV[13]), ARGV[14], ARGV[15], ARGV[20]

--@include job
--@include generation
--@include state

local v, last, born, present, acts, top, base, took, ran, struck, former, former_of, id = unpack(redis.call('HMGET', job,
  'v', 'last', 'born', 'gen', 'def', 'top', 'base', 'took', 'ran', 'struck', 'sched', 'schedof', 'id'))
if v and too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HLEN', open)
redis.call('LLEN', defs)
redis.call('LLEN', deeds)
local given = redis.call('GET', tomb)
local now, us = server_time()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'last', last)
  announce(ARGV[21], 'begun ' .. last)
elseif after ~= '' then
  local ahead = tonumber(after) - tonumber(last)
  if ahead > 0 and sure == '1' or ahead < 0 and last == born then
    redis.call('HSET', job, 'last', after)
    redis.call('HDEL', job, 'born')
    id = nil
    announce(ARGV[21], 'repaired ' .. after)
  end
end
redis.call('HSET', job, 'v', whole(math.max(tonumber(v or 0), SCHEMA)), 'retain', retain)
for _, field in ipairs(redis.call('HKEYS', job)) do
  local tick = string.match(field, '^open:(%-?%d+)$')
  if tick and redis.call('HEXISTS', open, tick) == 0 then
    redis.call('HSET', open, tick, cjson.encode({
      attempt = '1', token = '0', start = whole(now), til = '0', held = whole(now), seen = whole(now),
      tries = {{attempt = '1', error = 'the server lost its record'}},
    }))
    id = nil
  end
end
local restored = control ~= '' and tonumber(cjson.decode(control).at) > controlled(job)
if restored then
  obey(job, control)
  local is_listed = false
  for _, entry in ipairs(redis.call('LRANGE', deeds, 0, -1)) do
    is_listed = is_listed or entry == control
  end
  if not is_listed then
    listed(deeds, control)
  end
  id = nil
  announce(ARGV[21], 'restored')
end
stay(job, open, runs, retain)
follow(job, defs)
if restored then
  follow(job, deeds)
end
if not id then
  redis.call('HSET', job, 'id', whole(us))
end
if ended ~= '' then
  for _, tick in ipairs(redis.call('HKEYS', open)) do
    local record = read(open, tick)
    if tonumber(tick) <= tonumber(ended) and not requested(tick, record) then
      end_run(job, open, runs, keep, tick, record, 'unknown', 'it had ended before the server lost data', now)
      announce(ARGV[21], 'ended ' .. tick)
    end
  end
end

local list = replicas(job, now)
present, top = tonumber(present or 0), tonumber(top or 0)
local g = {mine = '1', own = own}

-- take makes the caller's definition the one that acts.
local function take(changed)
  local accounted = redis.call('HGET', job, 'last')
  if acts ~= base and own <= present then
    local counts, strike = struck and cjson.decode(struck) or {}, 1
    for _, tick in ipairs(redis.call('HKEYS', open)) do
      local record = read(open, tick)
      if record.gen == whole(present) and record.run ~= '' then
        strike = 3 -- it died in the midst of a run
      end
    end
    counts[acts] = (counts[acts] or 0) + strike
    struck = cjson.encode(counts)
    redis.call('HSET', job, 'struck', struck)
  end
  if changed then
    if ARGV[19] ~= '' then
      skip(job, runs, keep, accounted, ARGV[17], ARGV[18], ARGV[19], 'rescheduled')
      g.dropped = '1'
    end
    account(job, upto)
  end
  if sched ~= '' and (former_of ~= acts or former ~= sched) then
    redis.call('LPUSH', defs, cjson.encode({from = redis.call('HGET', job, 'last'), spec = spec}))
    redis.call('LTRIM', defs, 0, 999)
    follow(job, defs)
  end
  redis.call('HSET', job, 'gen', whole(own), 'def', def, 'top', whole(math.max(top, own)))
  redis.call('HDEL', job, 'ran', 'yield')
  if not base then
    base = def
    redis.call('HSET', job, 'base', base)
  end
  present, acts, took, ran = own, def, now, nil
  announce(ARGV[21], 'generation')
end

if me ~= '' then
  local lost = own > top -- the server has forgotten that order
  local arrived = not list[me]
  local mine = list[me] or {since = now}
  if def == acts then
    own = present
  elseif start == '1' then
    own = tonumber(given) or top + 1
    top = math.max(top, own)
    redis.call('HSET', job, 'top', whole(top))
  end
  mine.order = own
  local proof = mine.since + proof_time(strikes(struck, def), def == acts) - now
  local fit = mine.fit or def == base or proof <= 0
  local there, beside = census(list, present, me), census(list, own, me)
  if def == acts then
    fit = fit or not (there.fit or beside.rival)
  else
    local may = fit and own > present
    if not there.fit then
      may = may or not acts or (fit or not beside.rival) and (start == '1' or now <= trust)
    end
    if may then
      local changed = former and former_of == acts and sched ~= '' and sched ~= former and not lost
      local accounted = redis.call('HGET', job, 'last')
      if changed and (ARGV[16] ~= accounted or tonumber(upto) > now and upto ~= accounted) then
        g.handover = '1'
        local yield = tonumber(redis.call('HGET', job, 'yield') or 0)
        if upto ~= '' and (now >= yield + YIELD_EVERY or now < yield) then
          redis.call('HSET', job, 'yield', whole(now))
        end
      else
        take(changed)
        fit = true
      end
    end
  end
  if start == '1' then
    redis.call('SET', tomb, whole(own), 'PX', ARGV[11])
  end
  list[me] = mine
  if def == acts and fit then
    -- If the clock was set back since, the trial begins again instead of lasting longer by that.
    redis.call('HSET', job, 'took', whole(math.min(tonumber(took or now), now)))
    if acts ~= base and ran == whole(own) and now - tonumber(took) >= TRIAL then
      base = def
      redis.call('HSET', job, 'base', base)
      redis.call('HDEL', job, 'struck')
    end
    if sched ~= '' then
      redis.call('HSET', job, 'sched', sched, 'schedof', def, 'spec', spec)
    end
  else
    g.mine = ''
    g.proof = not fit and proof
  end
  g.own = own
  local all = census(list, present, '')
  g.watch = acts ~= base and all.others > 0 and '1'
  if arrived and def ~= acts and g.watch == '1' then
    announce(ARGV[21], 'generation')
  end
  mine.till = now + (g.watch == '1' and g.mine == '1' and TRIAL_LAPSE or LAPSE)
  mine.order, mine.fit = own, fit
  redis.call('HSET', job, 'live:' .. me, live_line(mine))
end
if g.mine == '1' and next_tick ~= '' then
  redis.call('HSET', job, 'next', next_tick)
end
local all = census(list, present, '')
g.replicas, g.others = all.same, all.others
return state(job, open, us, g)
