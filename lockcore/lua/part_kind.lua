-- kind_of tells what stands at a lock's key: '' (nothing), 'string', a kind of
-- part_owned.lua, or 'other': a foreign key, or one that is spoilt.
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
