-- The replicas of a job and their definitions. Only replicas of the acting definition claim ticks. It needs part_job.
--   job   hash: def: the acting definition; spec: its schedule as text; ttl: TTL (ms) of the leases of its runs;
--         live:<replica>: 'till first seen since def identity':
--           till         when the replica counts as dead unless it makes another request
--           first, seen  its first and its newest request
--           since        when it got its definition
--           def          its definition
--           identity     its name for operators
--
-- A definition is proven when one of its replicas has made requests for PROBATION, from its first to its newest one.
-- The proven definition that appeared last acts; it appeared when the first of its live replicas got it. If none is
-- proven, the acting one stays.
local PROBATION = 5000           -- ms

-- lapse returns the time (ms) without a request after which a replica counts as dead. The replica makes a request at
-- least every third of that time. same counts the replicas of its definition with itself, others the replicas of
-- other definitions. With more replicas, each makes fewer requests: it is enough that one replica notices a lost
-- message.
local function lapse(same, others)
  return others > 0 and 15000 or math.min(math.max(90000, 30000 * same), 360000)
end

-- put stores a replica.
local function put(job, id, r)
  local text = string.format('%.0f %.0f %.0f %.0f %s %s', r.till, r.first, r.seen, r.since, r.def, r.identity)
  redis.call('HSET', job, 'live:' .. id, text)
end

-- replicas returns the live replicas by id, and removes the dead ones. If the newest request of a replica is in the
-- future, the clock was set back. The times of the replica are then set back by as much.
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

-- newest returns the newest proven definition, or nil. It ignores the definition `without`.
local function newest(live, without)
  local oldest, proven, found = {}, {}, nil -- keyed by definition
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

-- elect stores and returns the definition that must act now. acting is the definition
-- that acted until now. If it is nil and no definition is proven, candidate acts.
local function elect(job, channel, live, acting, candidate)
  local elected = newest(live) or acting or candidate
  if elected ~= acting then
    redis.call('HSET', job, 'def', elected)
    if acting then
      announce(channel, 'definition')
    end
  end
  return elected
end

-- charge makes the replicas of a dead holder's definition begin PROBATION again, as that definition may be the cause.
-- It does so once for each death, and only if another definition is proven. It returns whether it did.
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

-- count returns how many replicas have the definition def, and how many have another one.
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
