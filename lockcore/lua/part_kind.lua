-- kind_of returns the kind of a lock's key: '' without a key, 'string', a tag of
-- part_entry.lua, or 'other' for a foreign or damaged key.
local function kind_of(lock)
  local type_of = redis.call('TYPE', lock).ok
  if type_of == 'none' then
    return ''
  elseif type_of == 'string' then
    return 'string'
  end
  for _, tag in ipairs(type_of == 'zset' and {'ns1', 'np1'} or {}) do
    if redis.call('ZSCORE', lock, tag) then
      return tag
    end
  end
  return 'other'
end
