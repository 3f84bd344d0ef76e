-- catalog_look: return what has changed in the catalog.
--
-- KEYS[1] specs   hash, name -> what is stored
-- KEYS[2] live    zset, the revisions of the jobs
-- KEYS[3] gone    zset, the revisions of the deletions
-- ARGV[1] known   what has a greater revision is returned
-- ARGV[2] most    jobs, and as many deletions
--
-- Returns {newest, upto, dropped, n, name, revision, text, …}: newest: the newest revision; upto: all that has changed up to
-- that one is returned; dropped: the newest deletion that is not kept; n jobs, and then deletions.
--
-- Twice is safe: it only reads.
local specs, live, gone = KEYS[1], KEYS[2], KEYS[3]
local known, most = ARGV[1], tonumber(ARGV[2])

--@include catalog

local last = math.max(newest(live), newest(gone))
local upto, answer, n = last, {}, 0
for _, key in ipairs({live, gone}) do
  local found = redis.call('ZRANGE', key, '(' .. known, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  for i = 1, #found, 2 do
    local text = redis.call('HGET', specs, found[i])
    if text then
      n = key == live and n + 1 or n
      answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = found[i], string.format('%.0f', tonumber(found[i + 1])), text
    end
  end
  if #found == 2 * most then
    upto = math.min(upto, tonumber(found[#found]))
  end
end
local head = {string.format('%.0f', last), string.format('%.0f', upto), revision_of(gone, '') or '0', n}
for _, text in ipairs(answer) do
  head[#head + 1] = text
end
return head
