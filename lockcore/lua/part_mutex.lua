-- advance grants a free mutex to the first waiter that is alive. Call it only while the lock is free. It
-- returns the token if that waiter is `me`, {7} if that waiter is of another kind, which is notified to check, and nil
-- otherwise, and then in how many ms the caller should check the lock again: when a grant ends that it has
-- made, 0 if there are more waiters to skip, nil if there is nothing to check. A waiter that has lapsed is dropped,
-- and joins again if it is alive. So are all waiters of a process that did not confirm a grant or answer a call.
-- One call passes 1000 waiters at most, some milliseconds; the next check continues.
-- head, behind: the first two of the queue, if the caller knows them.
local function advance(lock, fence, keep, queue, seen, me, ttl, now, head, behind)
  for _ = 1, 1000 do
    if not head then
      head, behind = unpack(redis.call('ZRANGE', queue, '0', '1'))
    end
    if not head then
      return nil
    end
    if head == me then
      drop(queue, seen, me)
      local token = next_token(fence, keep)
      redis.call('SET', lock, me, 'PX', ttl)
      notify_head(lock, behind, ttl)
      return token
    end
    local process = process_of(head)
    if process and alive(seen, head, process, now) then
      if string.sub(head, 1, 4) ~= 'nl1:' then
        yield(lock, queue, seen, head, process, me, now)
        return {7}
      end
      notify(lock, process, head, 'g', '')
      local time = note_grant(lock, queue, seen, process, me, now)
      drop(queue, seen, head)
      next_token(fence, keep)
      redis.call('SET', lock, head, 'PX', time)
      if behind then
        notify_other(lock, queue, seen, process, notify_head(lock, behind, time), time, now)
      end
      return nil, time
    end
    drop(queue, seen, head)
    head = nil
  end
  return nil, 0
end
