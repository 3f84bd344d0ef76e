-- kind_of tells what stands at a lock's key: '' (nothing), 'string', a kind of
-- part_owned.lua, or 'other': a foreign key, or one that is spoilt.
local function kind_of(lock)
  local type_of = redis.call('TYPE', lock).ok
  if type_of == 'none' then
    return ''
  elseif type_of == 'string' then
    return 'string'
  elseif type_of == 'hash' then
    local got = redis.call('HMGET', lock, 'kind', 'end')
    if (got[1] == 'nx1' or got[1] == 'ns1') and tonumber(got[2]) then
      return got[1]
    end
  end
  return 'other'
end
