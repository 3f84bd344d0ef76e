-- granted_to returns the identity of a holder of the lock that has not written the record, '' for another program's
-- value, and nil if the holder has written it or nobody holds the lock. An attempt is secret, its identity is not.
local function granted_to(lock, leader)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then
    return '' -- a key of another type
  end
  if not holder or redis.call('HGET', leader, 'by') == redis.sha1hex(holder) then
    return nil
  end
  return string.match(holder, '^nl1:%w+%.%w+/(.*)$') or ''
end
