-- state tells how a job stands:
--   {1, now µs, last, ok, paused, born, freed, resumed, gen, next, replicas,
--    mine, own, dropped, held, halted, tick, record, tick, record, …}
-- Times after it are strings of ms, '' where there is none. born: where the ledger
-- began, as nobody knew better; replicas: how many of the present generation live;
-- mine '1': the caller's generation is the present one; own: the order of its
-- definition; dropped: a tick of the former schedule that was skipped for this one;
-- held: since when runs had been held without a gap when one was freed; halted: since
-- when the job had been paused when it was resumed; the pairs are the open runs.
local function state(job, open, us, replicas, mine, own, dropped)
  local f = redis.call('HMGET', job, 'last', 'born', 'ok', 'paused', 'freed', 'resumed', 'gen', 'next', 'hold', 'halt')
  local answer = {
    1, us, f[1], f[3] or '', f[4] or '', f[2] or '', f[5] or '', f[6] or '', f[7] or '0', f[8] or '', replicas, mine,
    whole(own), dropped, begin_of(f[9]), begin_of(f[10]),
  }
  for _, text in ipairs(redis.call('HGETALL', open)) do
    answer[#answer + 1] = text
  end
  return answer
end
