package replica

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// step acts until nothing is left to do now, and returns the pause before the next step.
func (f *follower) step(ctx, work context.Context) (pause time.Duration, err error) {
	// Until readAfter has passed, only a message causes a read. An old state does no harm: the ledger refuses its
	// claim.
	if time.Since(f.readAt) >= f.readAfter() && f.freshness != stale {
		f.freshness = expired
	}
	defer f.releaseSlot()
	for again := true; again && err == nil; {
		f.queued = false
		f.applyEvents()
		if err = ctx.Err(); err == nil && f.freshness <= expired {
			err = f.read(ctx)
		}
		if err == nil {
			again, pause, err = f.act(ctx, work)
		}
	}
	if err != nil {
		f.freshness = stale
		return 0, err
	}
	// Messages must not postpone the next read: a replica that does not read counts as dead.
	return min(pause, max(0, f.readAfter()-time.Since(f.readAt))), nil
}

// act does one thing: it claims an open run that nobody holds, or claims or skips due ticks. again reports whether it
// must be called again at once. Otherwise pause is the time until the next step.
func (f *follower) act(ctx, work context.Context) (again bool, pause time.Duration, err error) {
	pause = f.readAfter()
	exclusive, blocked := !f.def.AllowOverlap, false // blocked: an earlier run must end first
	if f.state.Superseded || exclusive && len(f.running) > 0 {
		return false, pause, nil
	}
	if f.once != nil {
		requested := f.once.requested
		if err = f.once.step(ctx, f.def.Ledger, f.state); f.once.done || err != nil {
			return false, 0, err
		}
		if requested != f.once.requested {
			f.freshness = stale
			return true, 0, nil
		}
	}
	settling := f.state.Settling - time.Since(f.readAt)
	var free []ledger.RunID
	for _, open := range f.state.Open {
		left := open.Left - time.Since(f.readAt)
		waits := open.Begins() && left > 0
		switch {
		case open.Holder == f.r.client.Identity() && f.state.Replicas > 1:
			left += stepBack
		case open.Request != nil && open.Attempt == 0 && exclusive:
			left = max(left, stepBack-time.Since(f.peerRan))
		}
		switch {
		case f.running[open.Key()] != nil, open.Begins() && f.state.Paused:
		case left > 0:
			blocked = blocked || !open.EndAnnounced && !waits
			pause = min(pause, min(left, readEvery)+2*time.Millisecond) // an early claim would be refused
		case open.EndAnnounced: // the last read shows the run open, so the message about its end may be forged
			f.freshness = stale
			return true, 0, nil
		case blocked && exclusive:
		case settling > 0 && !open.Triggered && open.Request == nil:
			blocked, pause = true, min(pause, settling)
		case exclusive:
			return f.claim(ctx, work, open.RunID, time.Time{})
		default:
			free = append(free, open.RunID)
		}
	}
	if len(free) > 0 { // a random one, so that replicas seldom claim the same one
		return f.claim(ctx, work, free[rand.IntN(len(free))], time.Time{})
	}
	if f.state.Paused || blocked && exclusive || f.once != nil {
		return false, pause, nil
	}
	if settling > 0 {
		return false, min(pause, settling), nil
	}
	now, _ := f.r.clock.now()
	p := f.def.Plan(&f.state, now)
	switch {
	case p.Skip != nil && f.freshness != complete: // the reason for the skip depends on when the last run ended
		f.freshness = stale
		return true, 0, nil
	case p.Skip != nil:
		return f.skip(ctx, *p.Skip)
	case !p.Run.IsZero():
		return f.claim(ctx, work, ledger.RunID{Tick: p.Run}, p.Until)
	case !p.Next.IsZero():
		f.showNext(p.Next)
		pause = min(pause, p.Next.Sub(now)+f.r.clock.slack())
	}
	return false, pause, nil
}

// stepBack is how long a replica leaves a claim to others. A replica whose attempt failed leaves
// the next attempt to others, as the fault may be its own. The replica that ran last claims a new request first: one
// claim is enough.
const stepBack = 100 * time.Millisecond
