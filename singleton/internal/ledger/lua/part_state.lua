-- RECENT is how many entries of the history are searched for the newest run. Those of skipped ticks may precede it.
local RECENT = 4

-- state returns the state of a job, and the records of its open runs:
--   {1, now µs, last, ok, paused, born, begun, ended, replicas, mine, changed, id, spec,
--    others, wait, control, outcome, def, members, ttl, mark, tick, record, tick, record, …}
-- Times after now are strings of ms, '' if there is none. born: where the ledger began, if no replica knew the last
-- tick; begun, ended: when the newest run of the history did; replicas: the number of live ones of the acting
-- definition; mine '1': the caller may claim ticks; changed: since when no tick was run because the schedule changed,
-- if nothing was accounted for since; id: of this ledger; spec: the text of the schedule; others: the number of live
-- replicas of other definitions; wait: after how many ms the caller must look again, only in the reply of job_open;
-- control: the entry of the newest pause or resume in `acts`; outcome: of the run that ended last; def: the acting
-- definition; members: the live replicas as JSON, only in the reply of job_status; ttl: of a lease on a run (ms), as
-- the replicas of the acting definition have it; mark: see part_mark. The pairs are the open runs.
local function state(job, runs, us, g)
  local f = redis.call('HMGET', job, 'last', 'ok', 'paused', 'born', 'id', 'spec', 'control', 'outcome', 'def', 'ttl', 'open')
  local changed, run = '', {}
  for _, text in ipairs(redis.pcall('LRANGE', runs, 0, RECENT - 1)) do -- an ACL that forbids it stops nothing
    local _, entry = pcall(cjson.decode, text)
    local is_valid = type(entry) == 'table' -- or it is damaged
    if is_valid and entry.error == 'rescheduled' and entry.last == f[1] then
      changed = entry.tick
    end
    if is_valid and not entry.last then
      run = entry
      break
    end
  end
  local answer = {
    1, us, f[1], f[2] or '', f[3] or '', f[4] or '', run.tries and run.tries[1].start or run.start or '', run['end'] or '',
    g.same, g.mine, changed, f[5] or '', f[6] or '', g.others, g.wait or 0, f[7] or '', f[8] or '', f[9] or '',
    g.members or '', f[10] or '', g.mark or '',
  }
  local records, list = read_all(job, f[11], math.floor(us / 1000))
  for _, text in ipairs(list) do
    answer[#answer + 1] = text
  end
  return answer, records
end
