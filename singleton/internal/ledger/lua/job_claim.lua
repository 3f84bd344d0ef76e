-- job_claim: claim the run of a tick, new or of a dead holder.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] fence   string, the counter of fencing tokens
-- KEYS[4] tomb    string, exists if this run was abandoned or has ended
-- KEYS[5] payloads  hash, tick -> payload of an open run
-- ARGV[1] me      this run: a unique id of the attempt
-- ARGV[2] tick    ms, the tick or trigger of the run: see part_record
-- ARGV[3] def     the fingerprint of the caller's definition
-- ARGV[4] ledger  its id in the caller's state
-- ARGV[5] rest    '<overlap> <ttl> <known> <most> <keep> <latest> <channel> <holder>', in one argument, as most refusals
--                 need none of them.
--                 overlap: '1' if runs of several ticks may be under way at once, otherwise '0'
--                 ttl: ms, the lease ends after that without a renewal
--                 known: ms, the newest accounted tick as the caller knows it: no tick is due between it and this one
--                 most: attempts at a tick
--                 keep: ended runs to keep
--                 latest: ms, the latest start of a first attempt; empty: no limit
--                 channel: of the job; with {begins} at its end, the channel of the beginnings of attempts
--                 holder: the identity that is shown
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
--         {12}                too late: `latest` is over
--         {13}                another definition acts
--         or the reply of part_ledger: after {10}, open it first
--
-- The `last` of {2} and {3} is the newest accounted tick if this is the ledger that the caller knows, no
-- other run is open than the one of {2}, and no operator has requested that. Then the caller need not
-- look. Otherwise it is ''. After {2}, the message about the end of the run is a hint. If it is lost, or the
-- holder dies, the caller claims the tick again when the lease ends.
--
-- Most claims are refused, as each replica claims each tick, and one wins. So a refusal is returned before anything is
-- read that it does not need. The tombstone is read before a run is granted.
--
-- The replicas are read only if the holder has died: its death may make another definition act.
--
-- Twice is safe: a run that holds the tick gets the same reply, token and attempt,
-- and its lease is extended.
local job, runs, fence, tomb, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, tick, def, ledger = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include clock
--@include record

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
  local at, held = tick, record
  local is_only = is_empty or open == ' ' .. tick
  if not is_only and string.sub(ARGV[5], 1, 1) ~= '1' then
--@include end
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

-- granted returns the reply to a claim.
local function granted(token, attempt, unsure, dead)
  return {1, token, attempt, ok or '', unsure or '', asked and cjson.encode(asked) or '', payload or '', us, dead}
end

if is_mine then
  record.til = till
  redis.call('HSET', job, 'open:' .. tick, cjson.encode(record))
  return granted(record.token, record.attempt, record.unsure, record.dead or '')
end
redis.call('LLEN', runs) -- a key of another type fails here, and not when the run has ended
local attempt, unsure, dead = '1', nil, ''
if record then
--@include end
--@include job
--@include definitions
  if record.def then
    local live = replicas(job, now)
    if charge(job, tick, record, live, now) and elect(job, channel, live, acting) ~= def then
      return {13}
    end
  end
  attempt, unsure = whole(tonumber(record.attempt) + 1), record.unsure
  if record.run ~= '' then
    unsure, dead = '1', record.holder -- it died during the work, which may have taken effect
    tried(record, record.til, 'its holder died')
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
redis.pcall('PUBLISH', channel .. '{begins}', 'begins ' .. tick) -- a hint: see announce
return granted(token, attempt, unsure, dead)
