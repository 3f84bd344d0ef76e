-- take_back(record, me, channel): undo what an attempt has written about a term that did not begin. The
-- record then names nobody, and the term does not count.
local function take_back(record, me, channel)
  if redis.pcall('HGET', record, 'by') ~= redis.sha1hex(me) then
    return
  end
  local term, time = redis.call('HGET', record, 'term'), redis.call('TIME')
  redis.call('HSET', record, 'holder', '', 'metadata', '{}', 'term', string.format('%.0f', term - 1),
    'released', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
  redis.call('HDEL', record, 'by')
  redis.pcall('PUBLISH', channel, '')
end
