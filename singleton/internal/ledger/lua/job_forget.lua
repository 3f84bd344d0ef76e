-- job_forget: remove the ledger of a job that no replica runs.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] acts    list, what operators have done
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] channel the channel of the job
--
-- Returns {1}  removed
--         {20, identity, …}  these replicas run the job, or hold a run of it
--         or the reply of part_ledger
--
-- The counter of fencing tokens stays until its TTL ends. A request of a replica that arrives later finds no ledger: a
-- claim is refused, and job_open begins a new one.
--
-- Twice is safe: the second time there is no ledger.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

--@include clock
--@include record
--@include end
--@include job
--@include definitions

--@include ledger

local now = server_time()
local busy, known = {20}, {}
local function add(identity)
  if not known[identity] then
    known[identity] = true
    busy[#busy + 1] = identity
  end
end
for _, record in pairs((read_all(job, open, now))) do
  if is_held(record, now) then
    add(record.holder)
  end
end
for _, replica in pairs(replicas(job, now)) do
  add(replica.identity)
end
if #busy > 1 then
  return busy
end
announce(ARGV[1], 'forgotten')
for _, key in ipairs({job, runs, acts, payloads}) do
  redis.call('PEXPIRE', key, 0)
end
return {1}
