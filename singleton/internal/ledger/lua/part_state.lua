-- state returns the state of a job:
--   {1, now µs, last, ok, paused, born, freed, resumed, gen, next, replicas,
--    mine, own, dropped, held, halted, id, spec, others, watch, proof, handover,
--    control, cut, tick, record, tick, record, …}
-- Times after now are strings of ms, '' if there is none. born: where the ledger began, if
-- no replica knew the last tick; replicas: the number of live ones of the acting
-- generation; mine '1': the caller may claim ticks; own: the order of its definition;
-- dropped '1': ticks of the former schedule were skipped for this one; held: since when
-- runs had been held without a gap when the last one was freed; halted: the begin of the
-- last pause; id: of this ledger; spec: the schedule; others: the number of live replicas
-- of other definitions; watch '1': look often, because the acting definition is on trial;
-- proof: in how many ms the caller may act, 0 if that depends on others; handover '1': the
-- caller may act when it has reported the due ticks of the former schedule; control: the entry of
-- the newest pause or resume in `acts`; cut: the newest tick whose entry the history has dropped. The
-- pairs are the open runs.
local function state(job, open, us, g)
  local f = redis.call('HMGET', job, 'last', 'born', 'ok', 'paused', 'freed', 'resumed', 'gen', 'next', 'hold', 'halt', 'id', 'spec', 'control', 'cut')
  local answer = {
    1, us, f[1], f[3] or '', f[4] or '', f[2] or '', f[5] or '', f[6] or '', f[7] or '0', f[8] or '', g.replicas, g.mine,
    whole(g.own), g.dropped or '', begin_of(f[9]), begin_of(f[10]), f[11] or '', f[12] or '', g.others, g.watch or '',
    g.proof or 0, g.handover or '', f[13] or '', f[14] or '',
  }
  for _, tick in ipairs(redis.call('HKEYS', open)) do
    read(open, tick) -- which corrects its end
  end
  for _, text in ipairs(redis.call('HGETALL', open)) do
    answer[#answer + 1] = text
  end
  return answer
end
