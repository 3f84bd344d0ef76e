-- advance grants a free mutex to the first waiter that is alive. Call it only while the lock is free. It returns two
-- values. The first is the token if that waiter is `me`, {7} if the waiter is of another kind, otherwise nil. A waiter
-- of another kind is notified to check. The second is in how many ms the caller should check the lock again: when the
-- new grant ends, 0 if there are more waiters to skip, nil without a need to check. A waiter that has lapsed is
-- dropped, and joins again if it is alive. All waiters of a process that did not confirm a grant or answer a call are
-- dropped, too. One call skips at most 1000 waiters, which takes some milliseconds; the next check continues.
-- head, behind: the first two of the queue, if the caller knows them. It needs the parts token, note and queue.
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
