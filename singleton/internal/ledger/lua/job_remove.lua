-- job_remove: a stored job was deleted: nothing claims its ticks any more.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] open    hash, tick -> run that has not ended
-- KEYS[3] runs    list, ended runs
-- KEYS[4] acts    list, what operators have done
-- KEYS[5] due     sorted set, id -> instant
-- KEYS[6] payloads  hash, id -> payload
-- ARGV[1] def     'removed@' and the revision of the deletion
-- ARGV[2] keep    ended runs to keep
-- ARGV[3] rest    ms, how long the ledger is kept
-- ARGV[4] who     has deleted the job
-- ARGV[5] why     the reason; may be empty
-- ARGV[6] channel the channel of the job
--
-- Returns {1, ms}  done; the longest time for which a run is still held, 0 if none is
--         {11}     the schema is too new for this version
--
--	held ──► held, canceled ──the work returns──► recorded by its holder
--	                 └──its holder dies──► unknown, by a later call
--	not held, attempt 0 ──► skipped        not held, attempt 1 or more ──► unknown
--
-- One entry of the history has all runs that waited for an instant, and another one the time from the newest accounted
-- tick until now, as for another schedule. A job that was stored again has a greater revision, and is not changed; nor is
-- one that replicas have in their code.
--
-- Twice is safe: the second time, only runs that are no longer held end.
local job, open, runs, deeds, due, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local def, keep, rest, who, why, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

--@include clock
--@include job
--@include definitions
--@include due

local v, last, acting = unpack(redis.call('HMGET', job, 'v', 'last', 'def'))
if v and too_new(v) then
  return {11}
end
redis.call('LLEN', runs) -- a key of another type fails here, and not half-way
redis.call('HLEN', open)
local waiting = coming(due, -1)
local now = server_time()
local acts = acting and (revision(acting) or math.huge) or 0
if acts < revision(def) then
  local upto = whole(math.max(now, tonumber(last or 0) + 1))
  acted(deeds, whole(now), 'delete', nil, who, why)
  if last then
    log(job, runs, keep, {tick = whole(tonumber(last) + 1), last = upto, outcome = 'skipped', error = 'removed'})
  end
  if #waiting > 0 then -- triggers, which are not ticks
    log(job, runs, keep, {
      tick = '-' .. waiting[2], last = '-' .. waiting[#waiting], count = whole(#waiting / 2), outcome = 'skipped', error = 'removed',
    })
  end
  redis.call('PEXPIRE', due, 0)
  redis.call('PEXPIRE', payloads, 0)
  redis.call('HSET', job, 'v', v or SCHEMA, 'last', upto, 'def', def)
  for _, field in ipairs(redis.call('HKEYS', job)) do
    if field == 'paused' then
      redis.call('HSET', job, 'resumed', whole(now)) -- so that no replica restores the pause
    end
    if string.find(field, '^live:') or field == 'paused' or field == 'next' then
      redis.call('HDEL', job, field)
    end
  end
  stay(job, rest, due, open, runs, deeds)
  announce(channel, 'removed')
elseif not removed(acting) then
  return {1, 0}
end
local left = 0
local records, list = read_all(open, now)
for i = 1, #list, 2 do
  local tick, record = list[i], records[list[i]]
  left = math.max(left, left_of(record, now))
  stop_run(job, open, runs, keep, channel, tick, record, 'removed', who, 'the job was deleted' .. (why == '' and '' or ': ' .. why), now)
end
return {1, left}
