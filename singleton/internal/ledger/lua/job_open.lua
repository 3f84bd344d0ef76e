-- job_open: create the ledger of a job if there is none, keep it alive, return its state.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] acts    list, what operators have done
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] after   ms, a lost ledger begins after this tick; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to `after` may be claimed
--                 again
-- ARGV[3] ended   ms, the caller knows that all ticks up to here have ended, except for
--                 reruns; '' for none
-- ARGV[4] keep    ended runs to keep
-- ARGV[5] retain  ms, how long the ledger is kept without being used
-- ARGV[6] me      this replica
-- ARGV[7] def     the fingerprint of the job's definition in the caller
-- ARGV[8] age     ms, how long ago the replica started with this definition
-- ARGV[9] identity  the name of the replica that is shown
-- ARGV[10] spec   the text of the schedule in the caller
-- ARGV[11] control  the newest pause or resume that the caller knows, as in `acts`; '' for none
-- ARGV[12] read   the newest accounted tick and the text of the schedule, as the caller read them
-- ARGV[13] ttl    ms, the TTL of a lease on a run in the caller
-- ARGV[14] shared  ms, the first tick after that which the schedule that was read and the caller's have; '' for none
-- ARGV[15] channel  the channel of the job
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
-- they know.
--
-- part_definitions says which definition acts. Each look of a replica finds out, and also whether a holder has died.
-- Where none acts, the one of the caller does.
--
-- If the schedule changes, one entry of the history has the time from the newest accounted tick until now, or until a
-- shared tick. No tick of that time runs. A caller that has read something else looks again at once.
--
-- Twice is safe: the caller's knowledge does not change, and the second time the definition
-- already acts, and a death was charged.
local job, runs, deeds, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, age = ARGV[6], ARGV[7], tonumber(ARGV[8])
local spec, control, ttl, shared, channel = ARGV[10], ARGV[11], ARGV[13], tonumber(ARGV[14]), ARGV[15]

--@include clock
--@include record
--@include end
--@include job
--@include definitions
--@include mark
--@include state

local v, last, born, acts, id, open = unpack(redis.call('HMGET', job, 'v', 'last', 'born', 'def', 'id', 'open'))
if v and too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('LLEN', deeds)
local now, us = server_time()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'last', last, 'made', whole(us))
  redis.call('PEXPIRE', payloads, 0) -- the payloads of a lost job
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
if not id then
  redis.call('HSET', job, 'id', whole(us))
end
for _, tick in ipairs(ended ~= '' and ticks_of(open) or {}) do
  local record = tonumber(tick) <= tonumber(ended) and read(job, tick, now)
  if record and not record.asked then
    end_run(job, runs, keep, payloads, channel, tick, record, 'unknown', 'it had ended before the server lost data', now)
  end
end

local live = replicas(job, now)
local before = live[me]
local mine = {seen = now, since = now - age, def = def, identity = ARGV[9]}
if before and before.def == def then
  mine.since = math.min(before.since, mine.since) -- a late request does not make it younger
end
mine.first = before and before.first or now
live[me] = mine
local same, others = count(live, def)
local lasts = lapse(same, others)
mine.till = now + lasts
local g = {mine = '1', wait = lasts / 3}
put(job, me, mine)
if others > 0 then
  if not before or before.def ~= def then
    announce(channel, 'definition')
  end
  for tick, record in pairs((read_all(job, redis.call('HGET', job, 'open'), now))) do
    charge(job, tick, record, live, now)
  end
end
acts = elect(job, channel, live, acts, def)
local former, accounted = unpack(redis.call('HMGET', job, 'spec', 'last'))
local is_new = former and former ~= spec
if def ~= acts then
  local left = mine.first + PROBATION - now
  g.mine, g.wait = '', left > 0 and left or g.wait
elseif is_new and ARGV[12] ~= accounted .. ' ' .. former then
  g.mine, g.wait = '', 1
else
  local upto = math.min(math.max(now, accounted + 1), (shared or math.huge) - 1)
  if is_new and upto > tonumber(accounted) then
    local first, newest = whole(accounted + 1), whole(upto)
    log(job, runs, keep, {tick = first, last = newest, outcome = 'skipped', error = 'rescheduled'})
    redis.call('HSET', job, 'last', newest)
  end
  redis.call('HSET', job, 'spec', spec, 'ttl', ttl)
end
g.same, g.others = count(live, acts)
g.mark = mark(job, runs)
local answer, records = state(job, runs, us, g)
stay(job, retain, records, runs, payloads, restored and deeds or nil)
return answer
