-- mark returns a hash of all that job_open returns about a job without open runs. While it is the same, a replica need
-- not call job_open. The number of fields (HLEN) grows with each new replica.
local function mark(job, runs)
  local f = redis.call('HMGET', job, 'v', 'last', 'ok', 'paused', 'born', 'id', 'spec', 'control', 'outcome', 'def',
    'ttl', 'open')
  for i = 1, 12 do
    f[i] = f[i] or ''
  end
  f[13] = redis.call('HLEN', job)
  f[14] = redis.pcall('LRANGE', runs, 0, 0)[1] -- pcall: an ACL that forbids it stops nothing
  return redis.sha1hex(table.concat(f, '\n'))
end
