-- end_record(record, me, channel): write into the record of an election that nobody leads, and announce it.
-- Nothing is written twice, nor into a record of a newer version. me: only a record of this attempt; false: any.
-- pcall: a release must not fail for the record's sake. It needs part_clock.lua.
local function end_record(record, me, channel)
  if redis.pcall('HGET', record, 'v') == '1' and not redis.call('HGET', record, 'released')
    and (not me or redis.call('HGET', record, 'by') == redis.sha1hex(me)) then
    redis.pcall('HSET', record, 'holder', '', 'released', server_ms())
    redis.pcall('PUBLISH', channel, '')
  end
end
