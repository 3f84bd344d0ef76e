-- The runs of a job at an instant.
--   due      sorted set: id -> the instant (ms) as long as its run waits, then the negative of when it was opened
--   payloads hash: id -> JSON, a newline and the payload, which is dropped when the run has succeeded. The JSON has
--            who and why, at (ms, of the request), due (ms), size and sum of the payload, tick as soon as the run is
--            open, and no: '1' if it was canceled before
--
--	none ──add──► waiting ──due, not paused, fewer than ROOM open triggers──► open, as any triggered run
--	              waiting ──cancel──► open, canceled
--
-- An id is known until 10,000 later ones were opened, at least for REMEMBER, and as long as its run is open.
local KNOWN = 10000
local ROOM = 50            -- an operator may trigger up to a hundred
local REMEMBER = 300000    -- ms

-- called returns the JSON of an id, decoded, and its payload; nil: it is not known.
local function called(payloads, id)
  local text = redis.call('HGET', payloads, id)
  local cut = text and string.find(text, '\n', 1, true)
  if cut then
    return cjson.decode(string.sub(text, 1, cut - 1)), string.sub(text, cut + 1)
  end
end

local function call(payloads, id, header, payload)
  redis.call('HSET', payloads, id, cjson.encode(header) .. '\n' .. payload)
end

-- coming returns the first n ids that wait, each followed by its instant.
local function coming(due, n)
  return redis.call('ZRANGE', due, 0, '+inf', 'BYSCORE', 'LIMIT', 0, n, 'WITHSCORES')
end

-- raise opens the run of an id, and returns its tick. Without its payload, it is recorded as skipped.
local function raise(job, runs, keep, channel, due, payloads, id, no)
  local now = server_time()
  local tick = whole(math.min(-now, tonumber(redis.call('HGET', job, 'trig') or 0) - 1))
  local header, payload = called(payloads, id)
  redis.call('HSET', job, 'trig', tick)
  if not header then
    redis.call('ZREM', due, id)
    log(job, runs, keep, {tick = tick, last = tick, count = '1', outcome = 'skipped', error = 'payload lost', id = id})
    announce(channel, 'ended ' .. tick)
    return tick
  end
  header.tick, header.no = tick, no
  call(payloads, id, header, payload)
  redis.call('ZADD', due, -now, id)
  opened(job, tick, {what = 'trigger', who = header.who, why = header.why, at = header.at, id = id})
  announce(channel, 'open ' .. tick)
  if redis.call('ZCOUNT', due, '-inf', '(0') > KNOWN then
    for _, old in ipairs(redis.call('ZRANGE', due, '(0', '(' .. whole(REMEMBER - now), 'BYSCORE', 'REV', 'LIMIT', 0, ROOM * 2)) do
      local of = called(payloads, old)
      if not of or redis.call('HEXISTS', job, 'open:' .. of.tick) == 0 then
        redis.call('ZREM', due, old)
        redis.call('HDEL', payloads, old)
      end
    end
  end
  return tick
end
