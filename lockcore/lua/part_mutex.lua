-- advance, for a mutex: only while the lock is free. Serves the line from its head; answers
-- a token if `me` was served, nil if another was, or nobody is left. Who cannot
-- be reached or has lapsed leaves the line, and joins again if it lives; so do all
-- waiters of a process that did not confirm a grant. Not
-- more than 1000 in one script, some milliseconds; who looks next goes on.
-- The PUBLISH comes before the writes that depend on it: a script is not rolled
-- back.
local function advance(lock, fence, keep, queue, seen, me, ttl, now)
  local silent = {}
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return nil
    end
    if head == me then
      drop(queue, seen, me)
      local token = next_token(fence, keep)
      redis.call('SET', lock, me, 'PX', ttl)
      tell_head(lock, queue)
      return token
    end
    local process = process_of(head)
    if string.sub(head, 1, 4) == 'nl1:' and process and not silent[process] and lives(seen, head, process, now) then
      if tell(lock, head, 'g', '') ~= 0 then
        expect(seen, process, now + GRANT)
        drop(queue, seen, head)
        next_token(fence, keep)
        redis.call('SET', lock, head, 'PX', GRANT)
        local new = tell_head(lock, queue)
        if new and process_of(new) == process then
          tell_other(lock, queue, seen, process, GRANT, now)
        end
        return nil
      end
      silent[process] = true
    end
    drop(queue, seen, head)
  end
  return nil
end
