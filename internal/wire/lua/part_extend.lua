-- extend(lock, tomb, marker, me, ttl, list, token) extends the lock of one server of a quorum,
-- and commits its token. It returns the answer of quorum_renew, and needs part_member.lua.
local function extend(lock, tomb, marker, me, ttl, list, token)
  local holder = redis.pcall('GET', lock)
  if not holder then
    local no = refusal(marker, list, ttl)
    if no then
      return no
    end
    if redis.call('EXISTS', tomb) == 1 then
      return {6}
    end
  elseif holder ~= me then
    return {4}
  end
  local m = redis.call('HMGET', marker, 'list', 'top')
  if m[1] ~= list then
    return {9, m[1]}
  end
  if tonumber(token) > tonumber(m[2]) then
    redis.call('HSET', marker, 'top', token)
  end
  redis.call('SET', lock, me, 'PX', ttl)
  return {1}
end
