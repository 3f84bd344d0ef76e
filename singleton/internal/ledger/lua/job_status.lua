-- job_status: return the state of a job, remove dead replicas, and correct the ends of runs.
--
-- KEYS[1] job     hash, the job's state
-- KEYS[2] runs    list, ended runs
-- KEYS[3] due     sorted set, id -> instant
-- KEYS[4] payloads  hash, id -> payload
--
-- Returns the reply of part_state, with the definitions, or that of part_ledger.
--
-- Twice is safe: it shortens runs to their TTL, and replicas to their lapse, if the clock was set
-- back. Otherwise it only reads.
local job, runs, due, payloads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

--@include clock
--@include job
--@include definitions
--@include state
--@include due

--@include ledger

local ids, at = coming(due, 100), {}
for i = 1, #ids, 2 do
  local header = called(payloads, ids[i]) or {}
  at[#at + 1] = {id = ids[i], due = whole(tonumber(ids[i + 1])), who = header.who, why = header.why, at = header.at, size = header.size}
end
local now, us = server_time()
local live = replicas(job, now)
local same, others = count(live, acting)
local members = {}
for _, r in pairs(live) do
  members[#members + 1] = {def = r.def, identity = r.identity, since = whole(r.since)}
end
return state(job, runs, us, {
  same = same, others = others, mine = '1', members = #members > 0 and cjson.encode(members),
  coming = #at > 0 and cjson.encode({count = redis.call('ZCOUNT', due, 0, '+inf'), runs = at}),
})
