-- mark returns a hash of what job_open tells about a job without open runs. It leaves out the other replicas: those
-- whose definition is new say so in a message.
local function mark(job, runs)
  local f = redis.call('HMGET', job, 'v', 'last', 'ok', 'paused', 'born', 'id', 'spec', 'control', 'outcome', 'def',
    'ttl', 'open')
  for i = 1, 12 do
    f[i] = f[i] or ''
  end
  f[13] = redis.pcall('LRANGE', runs, 0, 0)[1] or '' -- an ACL that forbids it stops nothing
  return redis.sha1hex(table.concat(f, '\n'))
end
