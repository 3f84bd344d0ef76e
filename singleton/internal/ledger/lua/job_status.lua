-- job_status: return the state of a job. Ledger.Status sends it.
--
-- KEYS[1] job     hash, the job's state: see part_record
-- KEYS[2] runs    list, the history
--
-- Returns the reply of part_state, with all live replicas
--         or the reply of part_ledger
--
-- It removes dead replicas and, if the clock was set back, corrects the ends of leases and the times of replicas.
--
-- Twice is safe: the second request corrects nothing more, and returns the state.
local job, runs = KEYS[1], KEYS[2]

-- From definitions: replicas, count. From ledger: acting.
--@include clock
--@include record
--@include finish
--@include job
--@include definitions
--@include state

--@include ledger

local now, us = server_time()
local live = replicas(job, now)
local same, others = count(live, acting)
local members = {}
for _, r in pairs(live) do
  members[#members + 1] = {def = r.def, identity = r.identity, since = whole(r.since)}
end
return state(job, runs, us, {
  same = same, others = others, mine = '1', members = #members > 0 and cjson.encode(members),
})
