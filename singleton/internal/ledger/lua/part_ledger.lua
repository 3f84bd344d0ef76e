-- The fields of the job, for scripts that need a ledger. Without one, the script returns {10}. It returns {11} if the
-- schema is too new for this version.
local v, last, ok, paused, acting, id, retain, newest_trigger, open, made = unpack(redis.call('HMGET', job,
  'v', 'last', 'ok', 'paused', 'def', 'id', 'retain', 'trig', 'open', 'made'))
if not last then
  return {10}
end
if too_new(v) then
  return {11}
end
