-- lock_rights: try commands, so that a missing right is found before a script needs it. lock.Name.CheckRights sends it.
--
-- KEYS[1] never   a key that does not exist
-- KEYS[2] fence   string, the counter of fencing tokens
-- ARGV[1] calls   the commands, one a line, words separated by spaces; the word * stands for
--                 KEYS[1], and the word fence for KEYS[2]
--
-- Returns 1, or the error of the first command that fails, with the name of that command. It then stops, so a
-- command that must not run without another one follows it.
--
-- Twice is safe: the commands leave nothing behind, so the answer is the same.
local never, fence, calls = KEYS[1], KEYS[2], ARGV[1]
local keys = {['*'] = never, fence = fence}
for line in string.gmatch(calls, '[^\n]+') do
  local words = {}
  for word in string.gmatch(line, '%S+') do
    words[#words + 1] = keys[word] or word
  end
  local answer = redis.pcall(unpack(words))
  if type(answer) == 'table' and answer.err then
    return redis.error_reply(answer.err .. ': ' .. words[1])
  end
end
return 1
