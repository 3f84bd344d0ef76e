-- job_open: create the ledger of a job if there is none, register the replica, return the state. Ledger.Open sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] acts    list, the actions of operators
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] after   ms, where a new or repaired ledger begins: the first tick is later; '' for now
-- ARGV[2] sure    '1' if the caller knows that no tick up to `after` may be claimed again
-- ARGV[3] ended   ms, the caller knows that all ticks up to here have ended, except for reruns; '' for none
-- ARGV[4] keep    entries of the history to keep
-- ARGV[5] retain  ms, how long the ledger is kept after its last use
-- ARGV[6] me      id of the replica
-- ARGV[7] def     fingerprint of its definition
-- ARGV[8] age     ms, for how long it has this definition
-- ARGV[9] identity  its name for operators
-- ARGV[10] spec   its schedule as text
-- ARGV[11] control  the newest pause or resume that it knows: an entry of `acts`; '' for none
-- ARGV[12] read   '<last> <spec>' as it read them: the newest accounted tick, and the schedule
-- ARGV[13] ttl    ms, its TTL of a lease on a run
-- ARGV[14] shared  ms, the first tick after ARGV[12] that its schedule and the one in ARGV[12] have; '' for none
-- ARGV[15] channel of the job
--
-- Returns the reply of part_state, or {11} if the schema is too new for this version
--
-- While the server keeps its data, no caller knows more than the ledger. After a loss, the script repairs the ledger:
--   A ledger was set back (failover, old snapshot): `last` moves forward to `after`, so that no tick runs again.
--   A replica without knowledge created the ledger, and nobody used it since: `last` moves back to `after`, so that
--   ticks that were open at the loss are not forgotten.
--   The ledger does not have the pause or resume of the caller, or a newer one: it is applied again.
-- All replicas are notified of a new or repaired ledger, so that each sends what it knows.
--
-- Each request of a replica finds out which definition acts, and whether a holder has died: see part_definitions.
--
-- If the schedule changes, an entry of the history has the time from the newest accounted tick to now, or to `shared`.
-- No tick in this time runs. If the ledger is not as the caller has read it, the caller must first read it again.
--
-- Twice is safe: the second request repairs nothing, elects the same definition, and returns the state.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local after, sure, ended, keep, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local me, def, age = ARGV[6], ARGV[7], tonumber(ARGV[8])
local spec, control, ttl, shared, channel = ARGV[10], ARGV[11], ARGV[13], tonumber(ARGV[14]), ARGV[15]

-- From finish: announce, add_entry, end_run. From job: ticks_of, read, read_all, push_act, last_control, apply_control,
-- set_ttls. From definitions: lapse, put, replicas, elect, charge, count.
--@include clock
--@include record
--@include finish
--@include job
--@include definitions
--@include mark
--@include state

local v, last, born, acting, id, open = unpack(redis.call('HMGET', job, 'v', 'last', 'born', 'def', 'id', 'open'))
if v and too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of a wrong type fails here, before the first write
redis.call('LLEN', acts)
local now, us = server_time()
if not last then
  last = after
  if last == '' then
    last = whole(now)
    redis.call('HSET', job, 'born', last)
  end
  redis.call('HSET', job, 'last', last, 'made', whole(us))
  redis.call('PEXPIRE', payloads, 0) -- payloads of a lost ledger
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
local restored = control ~= '' and tonumber(cjson.decode(control).at) > last_control(job)
if restored then
  apply_control(job, control)
  local is_listed = false
  for _, entry in ipairs(redis.call('LRANGE', acts, 0, -1)) do
    is_listed = is_listed or entry == control
  end
  if not is_listed then
    push_act(acts, control)
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
local group = {mine = '1', wait = lasts / 3} -- for part_state
put(job, me, mine)
if others > 0 then
  if not before or before.def ~= def then
    announce(channel, 'definition')
  end
  for tick, record in pairs((read_all(job, redis.call('HGET', job, 'open'), now))) do
    charge(job, tick, record, live, now)
  end
end
acting = elect(job, channel, live, acting, def)
local former, accounted = unpack(redis.call('HMGET', job, 'spec', 'last'))
local is_new = former and former ~= spec
if def ~= acting then
  local left = mine.first + PROBATION - now
  group.mine, group.wait = '', left > 0 and left or group.wait -- until the caller's definition may be proven
elseif is_new and ARGV[12] ~= accounted .. ' ' .. former then
  group.mine, group.wait = '', 1 -- ms: read again at once
else
  local upto = math.min(math.max(now, accounted + 1), (shared or math.huge) - 1)
  if is_new and upto > tonumber(accounted) then
    local first, newest = whole(accounted + 1), whole(upto)
    add_entry(job, runs, keep, {tick = first, last = newest, outcome = 'skipped', error = 'rescheduled'})
    redis.call('HSET', job, 'last', newest)
  end
  redis.call('HSET', job, 'spec', spec, 'ttl', ttl)
end
group.same, group.others = count(live, acting)
group.mark = mark(job, runs)
local answer, records = state(job, runs, us, group)
set_ttls(job, retain, records, runs, payloads, restored and acts or nil)
return answer
