-- mark returns a hash of what job_open tells about a job without open runs. Of the other replicas, it has the number of
-- their fields, as a new replica has a new field.
local function mark(job, runs)
  local f = redis.call('HMGET', job, 'v', 'last', 'ok', 'paused', 'born', 'id', 'spec', 'control', 'outcome', 'def',
    'ttl', 'open')
  for i = 1, 12 do
    f[i] = f[i] or ''
  end
  f[13] = redis.call('HLEN', job)
  f[14] = redis.pcall('LRANGE', runs, 0, 0)[1] -- an ACL that forbids it stops nothing
  return redis.sha1hex(table.concat(f, '\n'))
end
