-- Whose definition of a job acts, that is: whose replicas claim its ticks.
--   job   hash:  gen and def what acts: the order of that definition's start, and its
--                fingerprint; top the highest order so far; base the definition that
--                was proven last; took when the one that acts took over, ran the gen
--                that has ended a run since; struck JSON: definition -> how often it
--                has lost the job again before it was proven; sched the fingerprint of
--                its ticks, spec what they are, schedof the definition that said so;
--                live:<replica> 'order end since fit': of its definition, alive until
--                (ms), seen since (ms), and '1' if it may act for that. It is a field of
--                this hash, as without it a definition that lives would lose the job
--   defs  list:  newest first, JSON of each change of what names the ticks: from, the
--                instant (ms) after which they count, and spec
-- A definition that acts and is not base is on trial.
local PROOF = 5000          -- for so long (ms) a replica lives before it counts as fit,
local PROOF_ON_TRIAL = 30000 -- beside others of its definition that is on trial,
local PROOF_MOST = 3600000  -- four times as long for each strike, up to this
local TRIAL = 300000        -- a definition that has lived for so long, and ended a run, is proven
local LAPSE = 90000         -- a replica that does not look for so long is dead,
local TRIAL_LAPSE = 15000   -- and one that acts on trial beside others after so long


-- live_line is what is written down of a replica.
local function live_line(r)
  return string.format('%.0f %.0f %.0f %d', r.order, r.till, r.since, r.fit and 1 or 0)
end

-- replicas reads who is alive, and forgets the dead. If the clock was set back since, a
-- replica lives for LAPSE from now, and was seen since now, but no longer.
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

-- census counts, but for one, the replicas of that order and the others, and says whether
-- any of the former is fit, and whether any of the latter is a rival: fit.
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

-- strikes are how often a definition has lost the job on trial.
local function strikes(struck, def)
  return struck and cjson.decode(struck)[def] or 0
end

-- proof_time is how long a replica of a definition lives before it is fit.
local function proof_time(count, acts)
  local time = math.min(PROOF * 4 ^ count, PROOF_MOST)
  return acts and math.max(time, PROOF_ON_TRIAL) or time
end
