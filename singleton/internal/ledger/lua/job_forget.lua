-- job_forget: remove the ledger of a job that no replica runs. Ledger.Forget sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
-- KEYS[3] acts    list, the actions of operators
-- KEYS[4] payloads  hash, tick -> payload of an open run
-- ARGV[1] channel of the job
--
-- Returns {1}  removed
--         {20, identity, …}  these replicas run the job, or hold a run of it
--         or the reply of part_ledger
--
-- The counter of fencing tokens stays until its TTL ends. Replicas find no ledger afterwards: their claims are refused,
-- and job_open creates a new ledger.
--
-- Twice is safe: the second time there is no ledger, and the answer is {10}.
local job, runs, acts, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- From finish: announce. From job: read_all, is_held. From definitions: replicas. From ledger: open.
--@include clock
--@include record
--@include finish
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
