-- kind_of returns the kind of a lock's key: '' (no key), 'string', a kind of
-- part_owned.lua, or 'other' (a foreign or damaged key).
local function kind_of(lock)
  local type_of = redis.call('TYPE', lock).ok
  if type_of == 'none' then
    return ''
  elseif type_of == 'string' then
    return 'string'
  elseif type_of == 'zset' then
    for _, kind in ipairs({'nx1', 'ns1'}) do
      if redis.call('ZSCORE', lock, kind) then
        return kind
      end
    end
  end
  return 'other'
end
