-- state returns the state of a job:
--   {1, now µs, last, ok, paused, born, freed, resumed, next, replicas, mine, changed, held,
--    halted, id, spec, others, wait, control, outcome, def, members, soon, coming, ttl, tick,
--    record, tick, record, …}
-- Times after now are strings of ms, '' if there is none. born: where the ledger began, if
-- no replica knew the last tick; replicas: the number of live ones of the acting definition;
-- mine '1': the caller may claim ticks; changed: since when no tick was run because the
-- schedule changed, if nothing was accounted for since; held: since when
-- runs had been held without a gap when the last one was freed; halted: the begin of the
-- last pause; id: of this ledger; spec: the text of the schedule; others: the number of live replicas
-- of other definitions; wait: for how many ms the caller is new, 0 if it is not, or may
-- claim ticks; control: the entry of the newest pause or resume in `acts`; outcome: of the run
-- that ended last; def: the acting definition; members: the live replicas as JSON, only in the reply of job_status; soon: the first instant of a
-- run that waits for one; coming: those runs as JSON, only in the reply of job_status; ttl: of a lease on a run
-- (ms), as the replicas of the acting definition have it. The pairs are the open runs.
local function state(job, open, us, g)
  local f = redis.call('HMGET', job, 'last', 'born', 'ok', 'paused', 'freed', 'resumed', 'next', 'hold', 'halt', 'id', 'spec', 'control', 'outcome', 'def', 'ttl')
  local answer = {
    1, us, f[1], f[3] or '', f[4] or '', f[2] or '', f[5] or '', f[6] or '', f[7] or '', g.same, g.mine,
    g.changed or '', begin_of(f[8]), begin_of(f[9]), f[10] or '', f[11] or '', g.others,
    g.wait or 0, f[12] or '', f[13] or '', f[14] or '', g.members or '',
    g.soon or '', g.coming or '', f[15] or '',
  }
  local _, list = read_all(open, math.floor(us / 1000))
  for _, text in ipairs(list) do
    answer[#answer + 1] = text
  end
  return answer
end
