-- The replicas of a job and their definitions. Only replicas of the acting definition claim ticks.
--   job   hash:  def: the acting definition; spec: the text of its schedule; ttl: of a lease on a run (ms), in its
--                replicas;
--                live:<replica>: 'till first seen since def identity', that is alive until, its first and its newest
--                request, since when it has its definition (ms), the definition and the name that is shown
--
-- A definition is proven while one of its replicas was heard for PROBATION, from its first to its newest request. Of
-- the proven ones, the one acts whose oldest replica got it last. If there is none, the acting one stays.
local PROBATION = 5000           -- ms

-- lapse returns after how many ms without a request a replica is dead, beside so many of its definition, itself included,
-- and of others. It looks in a third of that time. The more replicas look, the less often does each: a lost message is
-- noticed by one of them.
local function lapse(same, others)
  return others > 0 and 15000 or math.min(math.max(90000, 30000 * same), 360000)
end

-- put stores a replica.
local function put(job, id, r)
  local text = string.format('%.0f %.0f %.0f %.0f %s %s', r.till, r.first, r.seen, r.since, r.def, r.identity)
  redis.call('HSET', job, 'live:' .. id, text)
end

-- replicas returns the live replicas, and forgets the dead. If the clock was set back, the times of a replica are set
-- back by as much, from its newest request on.
local function replicas(job, now)
  local live = {}
  local fields = redis.call('HGETALL', job)
  for i = 1, #fields, 2 do
    local id = string.match(fields[i], '^live:(.*)$')
    if id then
      local text, r = fields[i + 1], {}
      r.till, r.first, r.seen, r.since, r.def, r.identity = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
      r.till, r.first, r.seen, r.since = tonumber(r.till or 0), tonumber(r.first), tonumber(r.seen), tonumber(r.since)
      local ahead = (r.seen or now) - now
      if ahead > 0 then
        r.till, r.first, r.seen, r.since = r.till - ahead, r.first - ahead, now, r.since - ahead
        put(job, id, r)
      end
      if r.till <= now then
        redis.call('HDEL', job, fields[i])
      else
        live[id] = r
      end
    end
  end
  return live
end

-- newest returns the proven definition whose oldest replica got it last, or nil. It leaves out the definition `without`.
local function newest(live, without)
  local oldest, proven, found = {}, {}, nil -- by definition
  for _, r in pairs(live) do
    oldest[r.def] = math.min(oldest[r.def] or r.since, r.since)
    proven[r.def] = proven[r.def] or r.seen - r.first >= PROBATION
  end
  for def, since in pairs(oldest) do
    local is_newer = not found or since > oldest[found] or since == oldest[found] and def > found
    if proven[def] and def ~= without and is_newer then
      found = def
    end
  end
  return found
end

-- elect makes the definition act that should, and returns it. candidate acts if none did before.
local function elect(job, channel, live, acts, candidate)
  local elected = newest(live) or acts or candidate
  if elected ~= acts then
    redis.call('HSET', job, 'def', elected)
    if acts then
      announce(channel, 'definition')
    end
  end
  return elected
end

-- charge makes the definition of a dead holder new, if another one is proven, and returns whether it did. A death is
-- charged once.
local function charge(job, tick, record, live, now)
  if not record.def or left_of(record, now) > 0 or not newest(live, record.def) then
    return false
  end
  for id, r in pairs(live) do
    if r.def == record.def then
      r.first = now
      put(job, id, r)
    end
  end
  record.def = nil
  write(job, tick, record)
  return true
end

-- count returns how many replicas have a definition, and how many have another one.
local function count(live, def)
  local same, all = 0, 0
  for _, r in pairs(live) do
    all = all + 1
    if r.def == def then
      same = same + 1
    end
  end
  return same, all - same
end
