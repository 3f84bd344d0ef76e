-- granted_to(lock, leader): nil if the holder of the lock has written the record: it leads, or nobody holds the lock.
-- Otherwise, its identity, '' for another program's. An attempt is secret, its identity is not.
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
