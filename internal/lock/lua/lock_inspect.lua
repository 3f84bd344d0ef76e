-- lock_inspect: return the holders and waiters of a lock of any kind, for people. It writes nothing.
-- lock.Client.Inspection returns the request.
--
-- KEYS[1] lock    string or sorted set, see mutex_acquire and part_entry.lua
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] size    string, how many holders a Semaphore may have
--
-- Returns {kind, left, holders, waiters, now µs, size}: kind is '' (free), 'string' (mutex), 'ns1' (lock with
-- owners), 'np1' (Semaphore) or 'other' (foreign key). left (ms) is the reply of PTTL. size is 0 if none is stored.
-- holders has four texts for each holder: attempt, mode (w, r or the slot), left (ms) and token. A token that is no
-- number means that none is stored. waiters has three texts for each: attempt, score, and 1 if the waiter is still
-- alive or 0 if not.
--
-- Twice is safe: it writes nothing.
-- kind_of comes from part_kind; the functions and constants of entries come from part_entry.
local lock, fence, queue, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

--@include kind
--@include entry

local time = redis.call('TIME')
local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(us / 1000)
local left = redis.call('PTTL', lock)
local kind, holders, waiters = kind_of(lock), {}, {}

local function row(list, ...)
  for _, cell in ipairs({...}) do
    list[#list + 1] = cell
  end
end

if kind == 'string' then
  row(holders, redis.call('GET', lock), 'w', string.format('%.0f', left), redis.pcall('GET', fence))
elseif kind == 'ns1' or kind == 'np1' then
  local tokens, slots, entries = {}, {}, {}
  local all = redis.call('ZRANGE', lock, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local score, part, attempt = tonumber(all[i + 1]), string.match(all[i], '^([ts]):(.*)$')
    if part == 't' then
      tokens[attempt] = whole(-score)
    elseif part == 's' then
      slots[attempt] = whole(score - SLOT)
    elseif score < COUNT and end_of(score) >= now then
      entries[#entries + 1] = {all[i], score}
    end
  end
  for _, entry in ipairs(entries) do
    local attempt, score = entry[1], entry[2]
    row(holders, attempt, slots[attempt] or score >= WRITES and 'w' or 'r', whole(end_of(score) - now), tokens[attempt] or '')
  end
end
-- pcall: a queue of a wrong type must not hide the holders.
local queued = redis.pcall('ZRANGE', queue, 0, -1, 'WITHSCORES')
for i = 1, #queued, 2 do
  local alive = (tonumber(redis.pcall('HGET', seen, queued[i])) or 0) > now
  row(waiters, queued[i], queued[i + 1], alive and '1' or '0')
end
return {kind, left, holders, waiters, us, size_of(redis.pcall('GET', KEYS[5])) or 0}
