-- The definition of a job that acts. Only its replicas claim ticks.
--   job   hash:  gen and def: the order of the acting definition's start, and its
--                fingerprint; top: the highest order so far; base: the definition that
--                was proven last; took: when the acting one took over; ran: the gen
--                that has ended a run since; struck: JSON, definition -> how often it
--                has lost the job before it was proven; sched: the fingerprint of its
--                schedule; spec: that schedule; schedof: the definition it belongs to;
--                yield: when a definition asked the acting one to wait, because it could not
--                count its due ticks between two claims;
--                live:<replica>: 'order end since fit', that is the order of its
--                definition, alive until (ms), seen since (ms), and '1' if it may act. It
--                is a field of this hash, because without it a definition with live
--                replicas would lose the job
--   defs  list:  newest first, JSON of each change of the schedule: from, the instant (ms)
--                after which it counts, and spec
-- An acting definition that is not base is on trial.
local PROOF = 5000          -- ms for which a replica must be alive to be fit
local PROOF_ON_TRIAL = 30000 -- the same, beside others of a definition on trial
local PROOF_MOST = 3600000  -- the maximum; each strike multiplies the time by four
local TRIAL = 300000        -- ms after which a definition that has ended a run is proven
local LAPSE = 90000         -- ms without a request after which a replica is dead
local YIELD_EVERY = 30000   -- ms until the acting definition must wait again, see yielding
local TRIAL_LAPSE = 15000   -- the same, for one that acts on trial beside others


-- live_line returns the stored text of a replica.
local function live_line(r)
  return string.format('%.0f %.0f %.0f %d', r.order, r.till, r.since, r.fit and 1 or 0)
end

-- replicas returns the live replicas, and deletes the dead ones. If the clock was set back,
-- a replica is alive for at most LAPSE from now, and was seen since now at the latest.
local function replicas(job, now)
  local fields, list = redis.call('HGETALL', job), {}
  for i = 1, #fields, 2 do
    local name = string.match(fields[i], '^live:(.*)$')
    if name then
      local order, till, since, fit = string.match(fields[i + 1], '^(%d+) (%d+) (%d+) (%d)$')
      if order and tonumber(till) > now then
        local r = {order = tonumber(order), till = tonumber(till), since = math.min(tonumber(since), now), fit = fit == '1'}
        if r.till > now + LAPSE then
          r.till = now + LAPSE
          redis.call('HSET', job, fields[i], live_line(r))
        end
        list[name] = r
      else
        redis.call('HDEL', job, fields[i])
      end
    end
  end
  return list
end

-- census counts the replicas of that order and the others, except for one. It also reports
-- whether any of that order is fit, and whether any of the others is (a rival).
local function census(list, order, but)
  local c = {same = 0, others = 0}
  for name, r in pairs(list) do
    if name ~= but then
      if r.order == order then
        c.same = c.same + 1
        c.fit = c.fit or r.fit
      else
        c.others = c.others + 1
        c.rival = c.rival or r.fit
      end
    end
  end
  return c
end

-- strikes returns how often a definition has lost the job on trial.
local function strikes(struck, def)
  return struck and cjson.decode(struck)[def] or 0
end

-- proof_time returns for how long (ms) a replica of a definition must be alive to be fit.
local function proof_time(count, acts)
  local time = math.min(PROOF * 4 ^ count, PROOF_MOST)
  return acts and math.max(time, PROOF_ON_TRIAL) or time
end
