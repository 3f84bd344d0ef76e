-- RECENT is how many entries of the history are searched for the newest run. Entries of skipped ticks may precede it.
local RECENT = 4

-- state returns the state of a job, and the records of its open runs by tick. The state is
--   {1, now µs, last, ok, paused, born, begun, ended, same, mine, changed, id, spec,
--    others, wait, control, outcome, def, members, ttl, mark, tick, record, tick, record, …}
-- Times after now are strings of ms. Each value is '' if there is none.
--   last, ok, paused, born, id, spec, control, outcome, def, ttl: see part_record and part_definitions
--   begun, ended: of the newest run in the history
--   same, others: the numbers of live replicas of the acting definition, and of other definitions
--   mine: '1' if the caller may claim ticks
--   changed: since when no tick ran because the schedule changed; '' if a tick was claimed or skipped afterwards
--   wait: ms until the caller must call job_open or job_refresh again; 0 from job_status
--   members: the live replicas as JSON, only from job_status
--   mark: see part_mark, only from job_open; tick, record: the open runs
-- group has same, mine, others, wait, members and mark.
local function state(job, runs, us, group)
  local f = redis.call('HMGET', job, 'last', 'ok', 'paused', 'born', 'id', 'spec', 'control', 'outcome', 'def', 'ttl', 'open')
  local changed, run = '', {}
  for _, text in ipairs(redis.pcall('LRANGE', runs, 0, RECENT - 1)) do -- pcall: an ACL that forbids it stops nothing
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
    group.same, group.mine, changed, f[5] or '', f[6] or '', group.others, group.wait or 0, f[7] or '', f[8] or '', f[9] or '',
    group.members or '', f[10] or '', group.mark or '',
  }
  local records, list = read_all(job, f[11], math.floor(us / 1000))
  for _, text in ipairs(list) do
    answer[#answer + 1] = text
  end
  return answer, records
end
