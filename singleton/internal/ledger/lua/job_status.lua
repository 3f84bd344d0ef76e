-- job_status: return the state of a job, remove dead replicas, and correct the ends of runs.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
--
-- Returns the reply of part_state, with the definitions, or the reply of part_ledger.
--
-- Twice is safe: it shortens runs to their TTL, and replicas to their lapse, if the clock was set
-- back. Otherwise it only reads.
local job, runs = KEYS[1], KEYS[2]

--@include clock
--@include record
--@include end
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
