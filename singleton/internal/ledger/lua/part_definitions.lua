-- The replicas of a job and their definitions. Only replicas of the acting definition claim ticks.
--   job   hash:  def: the fingerprint of the acting definition; gen: how many definitions
--                have taken over so far; sched: the fingerprint of its schedule; spec: that
--                schedule; yield: when a definition asked the acting one to wait, because it
--                could not count its due ticks between two claims;
--                live:<replica>: 'till since def identity', that is alive until (ms), started
--                at (ms), its definition and the name that is shown. It is a field of this
--                hash, because without it a definition with live replicas would lose the job;
--                died:<def>: 'count at', how many replicas of a definition have died, and when
--                the last one did (ms)
--
-- Which definition acts is one rule:
--   1. A new replica is on probation for 5 s, and four times as long for each replica of its
--      definition that died within the last hour, up to an hour.
--   2. Of the definitions with a replica that has passed, the one acts whose oldest replica
--      started last.
--   3. If there is none, the acting one continues while it has replicas. Without any, it is the
--      definition whose oldest replica started last.
local PROBATION, PROBATION_MOST = 5000, 3600000 -- ms
local FORGOTTEN = 3600000    -- ms after which deaths do not count any more
local LAPSE = 90000          -- ms without a request after which a replica is dead
local LAPSE_BESIDE = 15000   -- the same, beside replicas of another definition
local YIELD_EVERY = 30000    -- ms until the acting definition must wait again, see yielding

-- live_line returns the stored text of a replica.
local function live_line(r)
  return string.format('%.0f %.0f %s %s', r.till, r.since, r.def, r.identity)
end

-- replicas returns the live replicas, those that have lapsed, and how often replicas of each
-- definition have died. If the clock was set back, a replica is alive for at most LAPSE from now.
local function replicas(job, now)
  local live, lapsed, died = {}, {}, {}
  local fields = redis.call('HGETALL', job)
  for i = 1, #fields, 2 do
    local id, def = string.match(fields[i], '^live:(.*)$'), string.match(fields[i], '^died:(.*)$')
    if id then
      local till, since, of, identity = string.match(fields[i + 1], '^(%d+) (%d+) (%S+) (.*)$')
      if till then
        local r = {till = tonumber(till), since = tonumber(since), def = of, identity = identity}
        if r.till > now + LAPSE then
          r.till = now + LAPSE
          redis.call('HSET', job, fields[i], live_line(r))
        end
        local list = r.till > now and live or lapsed
        list[id] = r
      else
        redis.call('HDEL', job, fields[i])
      end
    elseif def then
      local count, at = string.match(fields[i + 1], '^(%d+) (%d+)$')
      if count and now - tonumber(at) < FORGOTTEN then
        died[def] = tonumber(count)
      else
        redis.call('HDEL', job, fields[i])
      end
    end
  end
  return live, lapsed, died
end

-- probation returns for how long (ms) a new replica of a definition is on probation.
local function probation(died, def)
  return math.min(PROBATION * 4 ^ (died[def] or 0), PROBATION_MOST)
end

-- remaining returns for how long (ms) a replica is still on probation; 0 or less: it has passed. If
-- the clock was set back since it looked, its age is unknown, and it has passed.
local function remaining(r, died, now)
  return r.since > now and 0 or r.since + probation(died, r.def) - now
end

-- chosen returns the definition that should take over, nil if the acting one continues for want of
-- another one, and whether one of its replicas has passed.
local function chosen(live, died, acts, now)
  local oldest = {} -- by definition
  for _, r in pairs(live) do
    if not oldest[r.def] or r.since < oldest[r.def].since then
      oldest[r.def] = r
    end
  end
  local newest, passed
  for def, r in pairs(oldest) do
    local function later(than)
      return not than or r.since > oldest[than].since or r.since == oldest[than].since and def > than
    end
    if later(newest) then
      newest = def
    end
    if remaining(r, died, now) <= 0 and later(passed) then
      passed = def
    end
  end
  if passed then
    return passed, true
  end
  return not oldest[acts] and newest, false
end

-- count returns how many replicas have a definition, how many have another one, and whether one of
-- the others has passed.
local function count(live, died, def, now)
  local same, others, rival = 0, 0, false
  for _, r in pairs(live) do
    if r.def == def then
      same = same + 1
    else
      others = others + 1
      rival = rival or remaining(r, died, now) <= 0
    end
  end
  return same, others, rival
end
