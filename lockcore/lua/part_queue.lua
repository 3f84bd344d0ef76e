-- The queue of a name: `queue` orders the attempts, and `seen` contains the time (ms, server clock) up to which
-- each attempt counts as alive. The field `!` of `seen` has one note a line, `<process> <until>`, for a process that
-- was granted the lock and has sent no request since. If <until> (ms) has passed, the process is frozen or dead, with
-- all its waiters. `<process> -<until>` is for a process that was called, that is asked to send a request, and for a
-- lapsed grant after which processes were called. An attempt begins `n<kind>1:<process>.<number>`.
-- Its process listens on the channel `channels` .. process. A script that publishes sets `channels`. Messages are
-- hints: whether one arrives decides nothing. The kind is `l` (mutex), `s` (with owners) or `p` (Semaphore). All kinds
-- share one queue. A name has the kind of its holder, or the kind of the first waiter that is alive. Attempts
-- of other kinds are refused, waiters at their next check.

-- How long (ms) a grant lasts if the waiter does not confirm it, and how long (ms) a process
-- has to answer a call.
local GRANT, CALL = 1000, 250

-- notify publishes to the process of an attempt. pcall: the script must continue if an ACL forbids PUBLISH.
local function notify(lock, process, attempt, kind, rest)
  redis.pcall('PUBLISH', channels .. process, kind .. ' ' .. lock .. ' ' .. rest .. attempt)
end

-- alive reports whether an attempt has sent a request lately, and its process has no
-- unconfirmed grant that has ended.
local function alive(seen, attempt, process, now)
  local till = string.match(notes_of(seen), process .. ' %-?(%d+)\n')
  return (tonumber(redis.call('HGET', seen, attempt)) or 0) > now and not (till and tonumber(till) <= now)
end

local function drop(queue, seen, attempt)
  redis.call('ZREM', queue, attempt)
  redis.call('HDEL', seen, attempt)
end

-- notify_head tells the first waiter, if there is one, that it is the head, and in how many ms the lock
-- expires: left, by default its TTL. It returns the process of that waiter. This is for speed only: each waiter
-- checks once per TTL anyway.
local function notify_head(lock, head, left)
  local process = head and process_of(head)
  if process then
    notify(lock, process, head, 'h', (left or redis.call('PTTL', lock)) .. ' ')
  end
  return process
end

-- note returns one line of the notes. It is longer than 64 bytes: Redis keeps a hash with a value of this
-- length as a table, and finds the fields of 500 attempts at once.
local function note(process, called, till)
  return string.format('%s %s%040.0f\n', process, called, till)
end

-- notify_processes notifies the first waiter of each process, except for those in `known`, until 32 processes
-- were notified, and returns these. It considers the first 1000 waiters before `me`.
local function notify_processes(lock, queue, kind, rest, known, me)
  local notified = {}
  for _, attempt in ipairs(redis.pcall('ZRANGE', queue, '0', '999')) do
    local process = process_of(attempt)
    if attempt == me or #notified == 32 then
      break
    elseif process and not known[process] then
      known[process] = true
      notify(lock, process, attempt, kind, rest)
      notified[#notified + 1] = process
    end
  end
  return notified
end

-- note_grant notes the time by which a process must confirm a grant. It returns for how long (ms) the
-- grant lasts. After another grant has lapsed, more processes may be frozen. They must not
-- cost one grant each. So all processes ahead of `me` are called once: each must send a request within CALL, and no
-- grant to a called process lasts longer than CALL. An earlier grant that the process must still confirm keeps its
-- time, or a frozen process would get one slot of a Semaphore after the other.
-- Call it before the field of the attempt is deleted, so that `seen` exists and has a TTL.
local function note_grant(lock, queue, seen, process, me, now)
  local lapsed, known, before, first = false, {[process] = true}, '', nil
  local notes = string.gsub(notes_of(seen), '(%w+) (%-?)(%d+)\n', function(of, called, till)
    known[of] = true
    if of == process then
      before, first = called, tonumber(till)
      return ''
    elseif called == '' and tonumber(till) <= now then
      lapsed = true
      return of .. ' -' .. till .. '\n'
    end
  end)
  local mark, ends = before, now + GRANT
  if lapsed then
    mark, ends = '-', now + CALL
    for _, called in ipairs(notify_processes(lock, queue, 'l', '', known, me)) do
      notes = notes .. note(called, '-', ends)
    end
  end
  local till = math.min(first or ends, ends)
  notes = notes .. note(process, mark, till)
  for _ = 49, select(2, string.gsub(notes, '\n', '')) do -- the last 48 are kept
    notes = string.gsub(notes, '^.-\n', '')
  end
  noted = notes
  redis.call('HSET', seen, '!', notes)
  return (before == '-' and till or ends) - now
end

-- yield removes `me` from the queue, as the head is of another kind. It calls the process of the head, which must send
-- a request within GRANT.
local function yield(lock, queue, seen, head, process, me, now)
  notify(lock, process, head, 'l', '')
  local notes = notes_of(seen)
  if not string.find(notes, process .. ' ', 1, true) then
    noted = notes .. note(process, '-', now + GRANT)
    redis.call('HSET', seen, '!', noted)
  end
  drop(queue, seen, me or '')
end

-- notify_other tells a waiter of another process when a grant ends, as the processes of the grant and of the new
-- head may be frozen. It considers the last waiter and the first 32, so that the cost of a handover does not grow
-- with the queue. This is for speed only: the process that made the grant checks it, too, unless it has ended since.
local function notify_other(lock, queue, seen, granted, head, left, now)
  -- A plain search from where the process begins takes less time than process_of.
  local this, that = granted .. '.', (head or '') .. '.'
  local function try(first, last)
    for _, attempt in ipairs(redis.call('ZRANGE', queue, first, last)) do
      local other = string.find(attempt, this, 5, true) ~= 5 and string.find(attempt, that, 5, true) ~= 5
      local of = other and process_of(attempt)
      if of and alive(seen, attempt, of, now) then
        notify(lock, of, attempt, 'h', left .. ' ')
        return true
      end
    end
  end
  return try('-1', '-1') or try('1', '31')
end

-- notify_all tells a waiter of each process when the grants end that are not confirmed. A
-- process that closes its Client cannot check them.
local function notify_all(lock, queue, seen, now)
  local left, granted = 0, {}
  for process, till in string.gmatch(notes_of(seen), '(%w+) %-?(%d+)\n') do
    granted[process] = true
    left = math.max(left, tonumber(till) - now + 1)
  end
  if left > 1 then
    notify_processes(lock, queue, 'h', string.format('%.0f ', left), granted)
  end
end
