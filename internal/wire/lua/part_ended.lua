-- end_record(record, me, channel) writes the end of the leader into the record of an election, and announces it. It
-- changes no record that has ended already or is of a newer version. me: the attempt whose record is ended, or false
-- for the record of any attempt. pcall: a release must not fail because of the record. It needs part_clock.lua.
local function end_record(record, me, channel)
  if redis.pcall('HGET', record, 'v') == '1' and not redis.call('HGET', record, 'released')
    and (not me or redis.call('HGET', record, 'by') == redis.sha1hex(me)) then
    redis.pcall('HSET', record, 'holder', '', 'released', server_ms())
    redis.pcall('PUBLISH', channel, '')
  end
end
