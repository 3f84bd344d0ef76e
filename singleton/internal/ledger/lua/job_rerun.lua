-- job_rerun: open a tick again that has ended without success.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] tomb    string, exists if this request was executed
-- KEYS[4] acts    list, what operators have done
-- KEYS[5] payloads  hash, tick -> payload of an open run
-- ARGV[1] tick    ms, the tick or trigger
-- ARGV[2] sure    '1' if the caller knows that the tick is one of the schedule
-- ARGV[3] most    open runs at most
-- ARGV[4] keep    ms, TTL of the tombstone
-- ARGV[5] who     the operator
-- ARGV[6] why     the reason; may be empty
-- ARGV[7] channel the channel of the job
--
-- Returns {1} the tick is open for replicas
--         {2} the limit is reached
--         {14} it is open: it has not ended
--         {15} it has succeeded
--         {16} the history does not have it, or its payload was lost
--         or the reply of part_ledger
--
--	failed, unknown, skipped ──rerun──► open, not held ──claim──► as any run
--
-- The attempts count from 1 again. A tick that ended as unknown may have taken effect, so it
-- is unsure from the beginning. The newest entry of a tick counts. An entry of several
-- skipped ticks has only its first and last one for sure, and an entry of a change of the schedule has none.
--
-- If the message is lost, replicas find the tick at their next check. A caller that dies has
-- sent the request or has not. A dead holder of the run is replaced as any other.
--
-- Twice is safe: the tombstone says that it is done.
local job, runs, tomb, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tick, sure = ARGV[1], ARGV[2]

--@include clock
--@include record
--@include end
--@include job

-- entry_of returns an entry that is of the tick. Most entries are not decoded. Of the time before a
-- change of the schedule, the caller is not sure.
local function entry_of(text)
  if string.find(text, tick, 1, true) or string.find(text, '"last"', 1, true) then
    local entry = cjson.decode(text)
    local is_change = entry.last and not entry.count
    sure = not is_change and sure
    if not is_change and (entry.tick == tick or entry.last == tick
      or sure == '1' and entry.last and tonumber(entry.tick) < tonumber(tick) and tonumber(tick) < tonumber(entry.last)) then
      return entry
    end
  end
end

if redis.call('EXISTS', tomb) == 1 then
  return {1}
end
--@include ledger

if redis.call('HEXISTS', job, 'open:' .. tick) == 1 then
  return {14}
end
local entry = find(runs, entry_of)
if not entry or entry.size and not entry.payload then
  return {16}
end
if entry.outcome == 'succeeded' then
  return {15}
end
local count = 0
for _, other in pairs((read_all(job, open, server_time()))) do
  count = count + (begins(other) and 0 or 1)
end
if count >= tonumber(ARGV[3]) then
  return {2}
end
redis.call('HEXISTS', payloads, tick) -- a key of another type fails here, and not half-way
local now = whole((server_time()))
acted(acts, now, 'rerun', tick, ARGV[5], ARGV[6])
local asked = {what = 'rerun', who = ARGV[5], why = ARGV[6], at = now, id = entry.id}
opened(job, open, tick, asked, '0', payloads, entry.payload or '', tomb, tick, ARGV[4], entry.outcome == 'unknown')
follow(job, acts)
follow(job, payloads)
announce(ARGV[7], 'open ' .. tick)
return {1}
