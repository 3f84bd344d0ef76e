-- job_claim: claim the run of a tick, new or of a dead holder.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] fence   string, the counter of fencing tokens
-- KEYS[4] tomb    string, exists if this run was abandoned or has ended
-- KEYS[5] payloads  hash, tick -> payload of an open run
-- ARGV[1] me      this run: a unique id of the attempt
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_job
-- ARGV[3] ttl     ms, the lease ends after that without a renewal
-- ARGV[4] known   ms, the newest accounted tick as the caller knows it: no tick is due
--                 between it and this one
-- ARGV[5] most    attempts at a tick
-- ARGV[6] overlap '1' if runs of several ticks may be under way at once
-- ARGV[7] keep    ended runs to keep
-- ARGV[8] ledger  its id in the caller's state
-- ARGV[9] holder  the identity that is shown
-- ARGV[10] until  ms, the latest start of a first attempt; '' for no limit
-- ARGV[11] def    the fingerprint of the caller's definition
-- ARGV[12] channel  the channel of the job
-- ARGV[13] begins the channel of the beginnings of attempts
--
-- Returns {1, token, attempt, last success or '', unsure or '', asked or '', payload or '', now µs, dead}   claimed;
--                             asked: JSON of what, who, why, id; dead: the holder that has died, '' if none
--                             has
--         {2, left ms, tick, holder, attempt, last}   that tick is being run, or the next attempt at it must wait
--         {3, last, last success or ''}   ended or skipped
--         {4, µs}             not due for this long, by the server's clock
--         {5}                 abandoned before this request arrived
--         {6}                 paused: that tick is new, or a run at an instant that has not begun
--         {7, tick}           an earlier tick is open: claim that first
--         {8, last}           the caller's state is old; last is the newest
--         {9, outcome}        recorded now: its holder died or released it, and no attempt is left, or it was
--                             canceled, or its payload was lost
--         {12}                too late: `until` is over
--         {13}                another definition acts
--         or the reply of part_ledger: after {10}, open it first
--
-- The `last` of {2} and {3} is the newest accounted tick if this is the ledger that the caller knows, no
-- other run is open than the one of {2}, and no operator has requested that. Then the caller need not
-- look. Otherwise it is ''. After {2}, the message about the end of the run is a hint. If it is lost, or the
-- holder dies, the caller claims the tick again when the lease ends.
--
-- The replicas are read only if the holder has died: its death may make another definition act.
--
-- Twice is safe: a run that holds the tick gets the same reply, token and attempt,
-- and its lease is extended.
local job, runs, fence, tomb, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, tick, ttl, known, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local overlap, keep, ledger, holder, def, channel = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[11], ARGV[12]

--@include clock
--@include token
--@include job
--@include definitions

if redis.call('EXISTS', tomb) == 1 then
  return {5}
end
--@include ledger

local now, us = server_time()
local records, list = read_all(job, open, now)
local record = records[tick]

-- busy refuses the claim, because a run is held.
local function busy(held_tick, held, left)
  local sole = #list == 2 and not held.asked and ledger == id
  return {2, left, held_tick, held.holder, tonumber(held.attempt), sole and last or ''}
end

local asked = record and record.asked
local payload = asked and asked.size and redis.call('HGET', payloads, tick)

-- granted returns the reply to a claim.
local function granted(token, attempt, unsure, dead)
  return {1, token, attempt, ok or '', unsure or '', asked and cjson.encode(asked) or '', payload or '', us, dead}
end

if record and record.run == me then
  record.til = whole(now + ttl)
  write(job, tick, record)
  return granted(record.token, tonumber(record.attempt), record.unsure, record.dead or '')
end
if acting ~= def then
  return {13}
end
if not record then
  if tonumber(tick) <= tonumber(last) then
    return {3, #list == 0 and ledger == id and last or '', ok or ''}
  end
  if tonumber(tick) > now then
    return {4, tonumber(tick) * 1000 - us}
  end
end
if paused and (not record or begins(record)) then
  return {6}
end

if overlap ~= '1' then
  local oldest
  for other, held in pairs(records) do
    if other ~= tick then
      if is_held(held, now) then
        return busy(other, held, left_of(held, now))
      end
      if not (paused and begins(held)) and (not oldest or instant(other, held) < instant(oldest, records[oldest])) then
        oldest = other
      end
    end
  end
  if oldest and instant(oldest, records[oldest]) < instant(tick, record) then
    return {7, oldest}
  end
end

local left = record and left_of(record, now) or 0
if left > 0 then
  return busy(tick, record, left)
end
redis.call('LLEN', runs) -- a key of another type fails here, and not when the run has ended
if record and record.def then
  local live = replicas(job, now)
  if charge(job, tick, record, live, now) and elect(job, channel, live, acting) ~= def then
    return {13}
  end
end
local attempt, unsure, dead = 1, nil, ''
if record then
  attempt, unsure = tonumber(record.attempt) + 1, record.unsure
  if record.run ~= '' then
    unsure, dead = '1', record.holder -- it died during the work, which may have taken effect
    tried(record, record.til, 'its holder died')
  end
  if record.cancel or attempt > most then
    local outcome, reason = given_up(record)
    end_run(job, runs, keep, payloads, channel, tick, record, outcome, (record.cancel and 'canceled; ' or '') .. reason, record.til)
    return {9, outcome}
  end
  if asked and asked.size and not payload then
    end_run(job, runs, keep, payloads, channel, tick, record, 'unknown', 'the server lost its payload', now)
    return {9, 'unknown'}
  end
elseif last ~= known then
  return {8, last}
elseif ARGV[10] ~= '' and now > tonumber(ARGV[10]) then
  return {12}
end

local token = next_token(fence)
local set = {'open:' .. tick, cjson.encode({
  run = me, holder = holder, attempt = whole(attempt), token = token,
  start = whole(now), til = whole(now + ttl), ttl = ARGV[3], unsure = unsure, dead = dead ~= '' and dead or nil,
  tries = record and record.tries, asked = asked, def = def,
})}
if not record then
  set[3], set[4], set[5], set[6] = 'open', (open or '') .. ' ' .. tick, 'last', tick
end
redis.call('HSET', job, unpack(set))
announce(ARGV[13], 'begins ' .. tick)
return granted(token, attempt, unsure, dead)
