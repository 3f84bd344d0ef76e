-- next_token(fence, keep) returns the next fencing token of the name, as a decimal string. A token is the server's
-- clock (µs), or the last token plus one if the clock is not ahead of that token. So tokens grow while the counter is
-- kept. If the counter is new, lost, or set back with the server's data (a failover to a replica that lagged), tokens
-- grow unless the clock was set back as well.
-- keep: ms for which the counter outlives the last grant, by default a week. After that, a token repeats only if the
-- clock is set back by more than keep. With false, the counter keeps its TTL, which takes less time, and a lost counter
-- lives for a week. A counter ahead of the clock outlives the time when the clock reaches it: if the counter expired
-- earlier, the next token would be the clock, which is smaller.
local function next_token(fence, keep)
  time = time or redis.call('TIME')
  local micros = time[2]
  if #micros < 6 then
    micros = string.sub('00000' .. micros, -6)
  end
  local token = time[1] .. micros
  local last
  if keep == false then
    last = redis.call('SET', fence, token, 'KEEPTTL', 'GET')
  end
  if not last then
    keep = keep or '604800000'
    last = redis.call('SET', fence, token, 'PX', keep, 'GET')
  end
  -- Texts of one length compare as numbers do, in less time.
  if last and (#last ~= #token or last >= token) then
    local ahead = (tonumber(last) or 0) - tonumber(token) -- µs
    if ahead >= 0 then
      token = string.format('%.0f', tonumber(last) + 1)
      if keep then
        redis.call('SET', fence, token, 'PX', string.format('%.0f', keep + ahead / 1000))
      else
        redis.call('SET', fence, token, 'KEEPTTL')
      end
    end
  end
  return token
end
