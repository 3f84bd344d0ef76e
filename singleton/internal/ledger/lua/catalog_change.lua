-- catalog_change: store a job, or delete it.
--
-- KEYS[1] specs   hash, name -> what is stored
-- KEYS[2] live    zset, the revisions of the jobs
-- KEYS[3] gone    zset, the revisions of the deletions
-- ARGV[1] name    of the job
-- ARGV[2] text    what is stored of it; of a deletion, who did it and why
-- ARGV[3] what    'create', 'replace' or 'delete', or 'renew': the text that is stored gets another revision
-- ARGV[4] known   the revision that the ledger of the job has, if the caller knows that it is greater than the stored one; otherwise 0
-- ARGV[5] keep    deletions to keep
-- ARGV[6] channel the channel of the catalog
--
-- Returns {1, revision, text}  done
--         {2, revision, text}  the same is stored; or the job was deleted before, with that text
--         {3}                  something else is stored
--         {4, revision, text}  the job was deleted: its ledger must have that first
--         {5}                  there is no such job
--
--	(unknown) ──create──► live ──delete──► gone ──create, after the ledger has the deletion──► live
--
-- The ledger of the job is in another slot, and learns the change later. A caller that dies before is no loss: each replica
-- that has code for the job brings what it reads to the ledger, and so does a repeated call. If the message is lost, replicas look.
--
-- Twice is safe: the same is stored, or it was deleted before. A late delete or replace that arrives after another change is
-- carried out.
local specs, live, gone = KEYS[1], KEYS[2], KEYS[3]
local name, text, what, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

--@include clock
--@include catalog

local stored = redis.call('HGET', specs, name) or '{}' -- a text that was lost
local there, deleted = revision_of(live, name), revision_of(gone, name)
if what == 'renew' and stored ~= text then
  return {3}
elseif there then
  if stored == text and tonumber(there) >= known then
    return {2, there, text}
  elseif stored ~= text and what == 'create' then
    return {3}
  end
elseif deleted and what == 'delete' then
  return {2, deleted, stored}
elseif deleted and tonumber(deleted) > known then
  return {4, deleted, stored}
elseif what == 'delete' then
  return {5}
end
local us = clock()[1] * 1000000 + clock()[2]
local revision = string.format('%.0f', math.max(us, newest(live) + 1, newest(gone) + 1, known + 1))
redis.call('HSET', specs, name, text) -- first what needs memory
redis.call('ZADD', what == 'delete' and gone or live, revision, name)
redis.call('ZREM', what == 'delete' and live or gone, name)
local over = redis.call('ZCARD', gone) - tonumber(ARGV[5])
if over > 1 then -- one is the newest that was dropped
  local dropped = redis.call('ZRANGE', gone, 0, over - 1, 'WITHSCORES')
  for i = 1, #dropped, 2 do
    redis.call('ZREM', gone, dropped[i])
    redis.call('HDEL', specs, dropped[i])
  end
  redis.call('ZADD', gone, dropped[#dropped], '')
end
redis.pcall('PUBLISH', ARGV[6], revision)
return {1, revision, text}
