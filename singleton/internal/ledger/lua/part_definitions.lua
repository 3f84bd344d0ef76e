-- The replicas of a job and their definitions. Only replicas of the acting definition claim ticks.
--   job   hash:  def: the acting definition; spec: the text of its schedule; ttl: of a lease on a run (ms), in its
--                replicas;
--                live:<replica>: 'till from since def identity', that is alive until (ms), asked
--                first at (ms), started at (ms), its definition and the name that is shown. It is
--                a field of this hash, because without it a definition with live replicas would
--                lose the job
--
-- Which definition acts is one rule. Of the definitions with a replica that asked first at least WAIT
-- ago, the one acts whose oldest replica started last. If there is none, the acting one stays
-- while it has replicas.
local WAIT = 5000            -- ms
local LAPSE = 90000          -- ms without a request after which a replica is dead
local LAPSE_BESIDE = 15000   -- the same, beside replicas of another definition

-- live_line returns the stored text of a replica.
local function live_line(r)
  return string.format('%.0f %.0f %.0f %s %s', r.till, r.from, r.since, r.def, r.identity)
end

-- replicas returns the live replicas, and forgets the dead. If the clock was set back, a replica is
-- alive for at most LAPSE from now.
local function replicas(job, now)
  local live = {}
  local fields = redis.call('HGETALL', job)
  for i = 1, #fields, 2 do
    local id = string.match(fields[i], '^live:(.*)$')
    if id then
      local till, from, since, def, identity = string.match(fields[i + 1], '^(%d+) (%d+) (%d+) (%S+) (.*)$')
      local r = {till = tonumber(till or 0), from = tonumber(from), since = tonumber(since), def = def, identity = identity}
      if r.till <= now then
        redis.call('HDEL', job, fields[i])
      else
        if r.till > now + LAPSE then
          r.till = now + LAPSE
          redis.call('HSET', job, fields[i], live_line(r))
        end
        live[id] = r
      end
    end
  end
  return live
end

-- waiting returns for how long (ms) a replica is new; 0 or less: it is not. If the clock was set back
-- since it asked first, that time is unknown, and it is not new.
local function waiting(r, now)
  return r.from > now and 0 or r.from + WAIT - now
end

-- chosen returns the definition that should act, or, while none has waited, the one that will. It also
-- returns whether the acting one has no replica.
local function chosen(live, acts, now)
  local oldest, waited = {}, {} -- by definition
  for _, r in pairs(live) do
    if not oldest[r.def] or r.since < oldest[r.def] then
      oldest[r.def] = r.since
    end
    waited[r.def] = waited[r.def] or waiting(r, now) <= 0
  end
  local newest, ready
  for def, since in pairs(oldest) do
    local function later(than)
      return not than or since > oldest[than] or since == oldest[than] and def > than
    end
    if later(newest) then
      newest = def
    end
    if waited[def] and later(ready) then
      ready = def
    end
  end
  return ready or newest, not oldest[acts]
end

-- count returns how many replicas have a definition, and how many have another one.
local function count(live, def)
  local same, others = 0, 0
  for _, r in pairs(live) do
    if r.def == def then
      same = same + 1
    else
      others = others + 1
    end
  end
  return same, others
end
