-- job_renew: extend the lease of a run. The keeper of leases gets it from runLease.Renewal and sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- ARGV[1] me      id of the attempt
-- ARGV[2] tick    the run: see part_record
-- ARGV[3] ttl     ms
--
-- Returns 1 held for ttl from now
--         2 the same, and the run is canceled
--         0 this attempt does not hold the run: it has ended, or another attempt has claimed it
--
-- Twice is safe: the second time the answer is the same, and the lease ends ttl after that.
local text = redis.call('HGET', KEYS[1], 'open:' .. ARGV[2])
local record = text and cjson.decode(text)
if not record or record.run ~= ARGV[1] then
  return 0
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
record.til = string.format('%.0f', now + tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'open:' .. ARGV[2], cjson.encode(record))
return record.cancel and 2 or 1
