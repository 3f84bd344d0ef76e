-- job_claim: claim a run for an attempt: of a due tick, or an open run that nobody holds. Ledger.Claim sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] fence   string, the counter of fencing tokens
-- KEYS[4] tomb    string, exists if this attempt was abandoned
-- KEYS[5] payloads  hash, tick -> payload of an open run
-- ARGV[1] me      unique id of the attempt
-- ARGV[2] tick    the run: see part_record
-- ARGV[3] def     fingerprint of the caller's definition
-- ARGV[4] ledger  id of the ledger that the caller has read
-- ARGV[5] rest    '<overlap> <ttl> <known> <most> <keep> <latest> <channel> <holder>'. They are one argument, as most
--                 refusals need none of them.
--                 overlap: '1' if runs of several ticks may be held at once, otherwise '0'
--                 ttl: ms until the lease ends without a renewal
--                 known: the newest accounted tick that the caller has read; no tick between it and `tick` is due
--                 most: greatest number of attempts
--                 keep: entries of the history to keep
--                 latest: ms, the latest start of a first attempt; empty: no limit
--                 channel: of the job; with {begins} at its end, the channel for begins of attempts
--                 holder: name of the replica for operators
--
-- Returns {1, token, attempt, ok, unsure, asked, payload, now µs, dead}   granted. asked is JSON. ok, unsure, asked,
--                      dead: see part_record; '' if there is none
--         {2, left ms, tick, holder, attempt, last}   that run is held, or its next attempt must wait. Without overlap,
--                      it may be another run
--         {3, last, ok}   the run has ended, or the tick was skipped; ok is '' if no tick has succeeded
--         {4, µs}      the tick is not due for this long
--         {5}          the attempt was abandoned before this request arrived
--         {6}          paused: no new run begins
--         {7, tick}    that open run comes first
--         {8, last}    the newest accounted tick is last, not `known`
--         {9, outcome} this script has ended the run: no attempt was left, it was canceled, or its payload was lost
--         {12}         `latest` is over
--         {13}         another definition acts: replicas of this one claim nothing
--         or the reply of part_ledger. After {10}, the caller must send job_open
--
-- If {2} and {3} name `last`, the caller need not read the ledger again. So `last` is '' if the caller has read
-- another ledger, if another run is open, or if an operator requested the run. A message announces the end of the run
-- in {2}. It can be lost, so the caller claims again when the lease should end.
--
-- Each replica claims each tick, and one gets it: most claims are refused. So a refusal comes before all that it does
-- not need: the read of the tombstone, and includes, which stand in branches because each defines functions.
--
-- Twice is safe: an attempt that holds the run gets the same token and attempt again, and its lease is extended.
local job, runs, fence, tomb, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, tick, def, ledger = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include clock
--@include record

-- As part_ledger, with other fields.
local v, last, ok, paused, acting, id, open, text = unpack(redis.call('HMGET', job,
  'v', 'last', 'ok', 'paused', 'def', 'id', 'open', 'open:' .. tick))
if not last then
  return {10}
end
if too_new(v) then
  return {11}
end
local is_empty = (open or '') == '' -- no run is open
if not text and acting == def and tonumber(tick) <= tonumber(last) then
  return {3, is_empty and ledger == id and last or '', ok or ''}
end

local now, us = server_time()
local record
if text then
  record = decode(job, tick, text, now)
end
local asked = record and record.asked
local is_mine = record and record.run == me
if not is_mine then
  if acting ~= def then
    return {13}
  end
  if not record and tonumber(tick) > now then
    return {4, tonumber(tick) * 1000 - us}
  end
  if paused and (not record or begins(record)) then
    return {6}
  end
  local at, held = tick, record -- the run that must end first, or is to be claimed
  local is_only = is_empty or open == ' ' .. tick -- no other run is open
  if not is_only and string.sub(ARGV[5], 1, 1) ~= '1' then
-- From job: read_all, is_held, instant.
--@include finish
--@include job
    local records, list = read_all(job, open, now)
    local oldest
    for other, run in pairs(records) do
      if other ~= tick then
        if is_held(run, now) then
          at, held = other, run
        elseif not (paused and begins(run)) and (not oldest or instant(other, run) < instant(oldest, records[oldest])) then
          oldest = other
        end
      end
    end
    if at == tick and oldest and instant(oldest, records[oldest]) < instant(tick, record) then
      return {7, oldest}
    end
    is_only = #list == 2
  end
  local left = held and left_of(held, now) or 0
  if left > 0 then
    return {2, left, at, held.holder, held.attempt, is_only and not held.asked and ledger == id and last or ''}
  end
end
if redis.call('EXISTS', tomb) == 1 then
  return {5}
end

local ttl, known, most, keep, latest, channel, holder = string.match(ARGV[5], '^%d (%d+) ([^ ]+) (%d+) (%d+) (%d*) ([^ ]+) (.*)$')
local till = whole(now + ttl)
local payload = asked and asked.size and redis.call('HGET', payloads, tick)

-- granted returns the reply {1, …}.
local function granted(token, attempt, unsure, dead)
  return {1, token, attempt, ok or '', unsure or '', asked and cjson.encode(asked) or '', payload or '', us, dead}
end

if is_mine then
  record.til = till
  redis.call('HSET', job, 'open:' .. tick, cjson.encode(record))
  return granted(record.token, record.attempt, record.unsure, record.dead or '')
end
redis.call('LLEN', runs) -- a key of a wrong type fails here, and not when the run ends
local attempt, unsure, dead = '1', nil, ''
if record then
-- From finish: end_run. From job: add_try, given_up. From definitions: replicas, charge, elect.
--@include finish
--@include job
--@include definitions
  if record.def then -- the holder has died, so another definition may have to act
    local live = replicas(job, now)
    if charge(job, tick, record, live, now) and elect(job, channel, live, acting) ~= def then
      return {13}
    end
  end
  attempt, unsure = whole(tonumber(record.attempt) + 1), record.unsure
  if record.run ~= '' then
    unsure, dead = '1', record.holder -- it died during the work, which may have taken effect
    add_try(record, record.til, 'its holder died')
  end
  if record.cancel or tonumber(attempt) > tonumber(most) then
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
elseif latest ~= '' and now > tonumber(latest) then
  return {12}
end

--@include token

local token = next_token(fence)
local run = cjson.encode({
  run = me, holder = holder, attempt = attempt, token = token, start = whole(now), til = till, ttl = ttl,
  unsure = unsure, dead = dead ~= '' and dead or nil, tries = record and record.tries, asked = asked, def = def,
})
if record then
  redis.call('HSET', job, 'open:' .. tick, run)
else
  redis.call('HSET', job, 'open:' .. tick, run, 'open', (open or '') .. ' ' .. tick, 'last', tick)
end
redis.pcall('PUBLISH', channel .. '{begins}', 'begins ' .. tick) -- a hint: see part_finish
return granted(token, attempt, unsure, dead)
