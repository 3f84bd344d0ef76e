-- The catalog: the jobs that are stored, for all replicas that follow it.
--   specs  hash:  name -> what is stored of the job, or of its deletion
--   live   zset:  name -> revision of a job
--   gone   zset:  name -> revision of the deletion of a job; '' -> the newest one that was dropped
-- A revision is the greatest of the server's clock in µs, the newest one plus one, and the one that the ledger is known to
-- have plus one. So a newer one is greater, also after a loss of data, unless the clock was set back as well. Only the revision of a deletion says that a job was
-- deleted; that the catalog lacks a job says nothing.

-- revision_of returns the revision of a name as a text; nil if there is none.
local function revision_of(key, name)
  local score = redis.call('ZSCORE', key, name)
  return score and string.format('%.0f', tonumber(score))
end

-- newest returns the newest revision of a set; 0 if it is empty.
local function newest(key)
  return tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or 0)
end
