-- The state of the job. Without a ledger, the script returns {10}, and with a ledger whose schema is
-- too new for this version, {11}.
local v, last, ok, paused, acting, id, retain, newest_trigger, open, made = unpack(redis.call('HMGET', job,
  'v', 'last', 'ok', 'paused', 'def', 'id', 'retain', 'trig', 'open', 'made'))
if not last then
  return {10}
end
if too_new(v) then
  return {11}
end
