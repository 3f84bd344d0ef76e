-- job_rerun: open a run again that has ended without success. Ledger.Rerun sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] tomb    string, exists if this request was executed
-- KEYS[4] acts    list, the actions of operators
-- KEYS[5] payloads  hash, tick -> payload of an open run
-- ARGV[1] tick    the run: see part_record
-- ARGV[2] sure    '1' if the caller knows that the schedule has the tick
-- ARGV[3] most    open runs at most
-- ARGV[4] keep    ms, TTL of the tombstone
-- ARGV[5] who     the operator
-- ARGV[6] why     the reason; may be empty
-- ARGV[7] channel of the job
--
-- Returns {1} the run is open
--         {2} `most` runs are open
--         {14} the run has not ended
--         {15} it has succeeded
--         {16} the history does not have it, or its payload was lost
--         or the reply of part_ledger
--
--	failed, unknown, skipped ──rerun──► open, not held ──claim──► like any run
--
-- The attempts count from 1 again. A run that ended as unknown may have taken effect, so its record has unsure. If the
-- history has several entries of a tick, the newest counts. An entry of skipped ticks names only the first and the last
-- one: a tick between them needs `sure`. An entry of a change of the schedule names no tick.
--
-- If the message is lost, replicas find the run when they read the state next.
--
-- Twice is safe: the second request finds the tombstone, and the answer is {1}.
local job, runs, tomb, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tick, sure = ARGV[1], ARGV[2]

-- From finish: announce, follow. From job: read_all, find, add_act, open_run. From ledger: open.
--@include clock
--@include record
--@include finish
--@include job

-- entry_of returns an entry if it is one of the tick. It decodes only entries that may be. Entries before a change of
-- the schedule belong to another schedule, so there `sure` says nothing.
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
redis.call('HEXISTS', payloads, tick) -- a key of a wrong type fails here, before the first write
local now = whole((server_time()))
add_act(acts, now, 'rerun', tick, ARGV[5], ARGV[6])
local asked = {what = 'rerun', who = ARGV[5], why = ARGV[6], at = now, id = entry.id}
open_run(job, open, tick, asked, '0', payloads, entry.payload or '', tomb, tick, ARGV[4], entry.outcome == 'unknown')
follow(job, acts)
follow(job, payloads)
announce(ARGV[7], 'open ' .. tick)
return {1}
