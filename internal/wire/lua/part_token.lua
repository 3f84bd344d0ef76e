-- next_token(fence, keep): the next fencing token of the name, as a decimal string.
-- A token is that clock, or one more than the last token if the clock is not ahead of
-- it: so it is greater than all that came before while the counter is kept, and, if
-- that is new, lost, or set back with the server's data, as by a failover to a replica
-- that lagged, while the clock is not set back as well.
-- keep: ms for which the counter outlives the last grant, by default a week. After that
-- only a clock that is set back by more than keep can repeat a token. false: the counter keeps its
-- TTL, which takes less time. A counter that was lost lives for a week. A counter that is
-- ahead of the clock is kept until then after the clock has come to it. If it ended
-- before, the next token would be taken from the clock, and be smaller.
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
