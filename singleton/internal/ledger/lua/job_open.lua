-- job_open: create the ledger of a job if there is none, keep it alive, return its state.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- KEYS[4] defs    list, changes of the schedule
-- KEYS[5] acts    list, what operators have done
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to `after` may be claimed
--                 again
-- ARGV[3] ended   ms, the caller knows that all ticks up to here have ended, except for
--                 reruns; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger is kept without being used
-- ARGV[6] me      this replica; '' if it runs no ticks by a definition
-- ARGV[7] def     the fingerprint of the job's definition in the caller
-- ARGV[8] age     ms, how long ago the replica started
-- ARGV[9] identity  the name of the replica that is shown
-- ARGV[10] gen    the number of take-overs in the last reply; '0' if there was none
-- ARGV[11] next   ms, the next tick as the caller computes it; '' if unknown
-- ARGV[12] sched  the fingerprint of the schedule in the caller
-- ARGV[13] spec   the schedule in a form that a later version can read
-- ARGV[14] upto   ms, the time up to which the caller has counted the due ticks of the former
--                 schedule; '' if it has not
-- ARGV[15] seen   ms, the newest accounted tick on which that count is based
-- ARGV[16] first  ms, the first such tick; '' if there is none
-- ARGV[17] newest ms, the last one
-- ARGV[18] count  how many
-- ARGV[19] control  the newest pause or resume that the caller knows, as in `acts`; '' for none
-- ARGV[20] waited '1' if another definition acted in the last reply
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
-- part_definitions says which definition acts. It takes over in a request of one of its replicas
-- that has passed. In a new ledger, one that did not act before waits for the one that did. A
-- replica whose own record has lapsed was away itself, so it gives the others the time to come
-- back, too. Otherwise, replicas that have lapsed have died.
--
-- A definition that takes over with another schedule first reports the ticks of the former
-- schedule that came due and are not accounted for, up to an instant in the past. They are
-- recorded as skipped, and its own ticks begin after that. If a tick was claimed since the count, no
-- other one is claimed for a moment, so that the next count is not late as well. After a loss of data, the replica
-- that remembers the last tick decides where the ticks continue, not the ledger.
--
-- Twice is safe: the caller's knowledge does not change, and the second time the definition has
-- already taken over.
local job, open, runs, defs, deeds = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, age, known, next_tick = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[10]), ARGV[11]
local sched, spec, upto, control, channel = ARGV[12], ARGV[13], ARGV[14], ARGV[19], ARGV[21]

--@include clock
--@include job
--@include definitions
--@include state

local v, last, born, gen, acts, former, id = unpack(redis.call('HMGET', job, 'v', 'last', 'born', 'gen', 'def', 'sched', 'id'))
if v and too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HLEN', open)
redis.call('LLEN', defs)
redis.call('LLEN', deeds)
local now, us = server_time()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'last', last)
  announce(channel, 'begun ' .. last)
elseif after ~= '' then
  local ahead = tonumber(after) - tonumber(last)
  if ahead > 0 and sure == '1' or ahead < 0 and last == born then
    redis.call('HSET', job, 'last', after)
    redis.call('HDEL', job, 'born')
    id = nil
    announce(channel, 'repaired ' .. after)
  end
end
redis.call('HSET', job, 'v', whole(math.max(tonumber(v or 0), SCHEMA)), 'retain', retain)
for _, field in ipairs(redis.call('HKEYS', job)) do
  local tick = string.match(field, '^open:(%-?%d+)$')
  if tick and redis.call('HEXISTS', open, tick) == 0 then
    redis.call('HSET', open, tick, cjson.encode({
      attempt = '1', start = whole(now), til = '0', held = whole(now), seen = whole(now),
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
  announce(channel, 'restored')
end
stay(job, retain, open, runs, defs)
if restored then
  follow(job, deeds)
end
if not id then
  redis.call('HSET', job, 'id', whole(us))
end
if ended ~= '' then
  local records, list = read_all(open, now)
  for i = 1, #list, 2 do
    local tick = list[i]
    local record = records[tick]
    if tonumber(tick) <= tonumber(ended) and not requested(tick, record) then
      end_run(job, open, runs, keep, tick, record, 'unknown', 'it had ended before the server lost data', now)
      announce(channel, 'ended ' .. tick)
    end
  end
end

gen = tonumber(gen or 0)
local live, lapsed, died = replicas(job, now)
local g = {mine = '1'}

-- take makes the caller's definition the one that acts.
local function take(changed)
  if changed then
    if ARGV[18] ~= '' then
      skip(job, runs, keep, redis.call('HGET', job, 'last'), ARGV[16], ARGV[17], ARGV[18], 'rescheduled')
      g.dropped = '1'
    end
    if newer(upto, redis.call('HGET', job, 'last')) then
      redis.call('HSET', job, 'last', upto)
    end
  end
  if former ~= sched then
    redis.call('LPUSH', defs, cjson.encode({from = redis.call('HGET', job, 'last'), spec = spec}))
    redis.call('LTRIM', defs, 0, 999)
    follow(job, defs)
  end
  redis.call('HSET', job, 'def', def, 'gen', whole(math.max(gen, known) + 1))
  redis.call('HDEL', job, 'yield')
  acts = def
  announce(channel, 'definition')
end

if me ~= '' then
  local arrived = not live[me]
  local away = arrived and age >= LAPSE_BESIDE
  for name, r in pairs(lapsed) do
    if away then
      r.till = now + LAPSE_BESIDE
      live[name] = r
      redis.call('HSET', job, 'live:' .. name, live_line(r))
    else
      redis.call('HDEL', job, 'live:' .. name)
      died[r.def] = (died[r.def] or 0) + 1
      redis.call('HSET', job, 'died:' .. r.def, whole(died[r.def]) .. ' ' .. whole(now))
    end
  end
  local mine = {since = now - age, def = def, identity = ARGV[9]}
  live[me] = mine
  local left = remaining(mine, died, now)
  local to, passed = chosen(live, died, acts, now)
  local renewed = us - tonumber(redis.call('HGET', job, 'id')) < LAPSE_BESIDE * 1000
  if to == def and def ~= acts and (left <= 0 or not passed) and (acts or ARGV[20] == '' or not renewed) then
    local changed = former and sched ~= former and known <= gen -- otherwise the server has forgotten a take-over
    local accounted = redis.call('HGET', job, 'last')
    if changed and (ARGV[15] ~= accounted or tonumber(upto) > now and upto ~= accounted) then
      g.handover = '1'
      local yield = tonumber(redis.call('HGET', job, 'yield') or 0)
      if upto ~= '' and (now >= yield + YIELD_EVERY or now < yield) then
        redis.call('HSET', job, 'yield', whole(now))
      end
    else
      take(changed)
    end
  elseif def == acts and known > gen then
    redis.call('HSET', job, 'gen', whole(known))
  end
  local _, others, rival = count(live, died, def, now)
  if def ~= acts or left > 0 and rival then
    g.mine = ''
    g.wait = math.max(left, 0)
  else
    redis.call('HSET', job, 'sched', sched, 'spec', spec)
  end
  if arrived and others > 0 then
    announce(channel, 'definition')
  end
  mine.till = now + (others > 0 and LAPSE_BESIDE or LAPSE)
  redis.call('HSET', job, 'live:' .. me, live_line(mine))
end
if g.mine == '1' and next_tick ~= '' then
  redis.call('HSET', job, 'next', next_tick)
end
g.same, g.others = count(live, died, acts, now)
return state(job, open, us, g)
