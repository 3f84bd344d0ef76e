package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// watch knows the draws under way, and which of them go on although they must
// not. Its zero value is ready.
type watch struct {
	mu    sync.Mutex
	draws map[*underway]struct{}
}

// underway is a draw that has not returned.
type underway struct {
	ctx   context.Context
	ended time.Time // when ctx was seen to have ended
}

// end is why a draw has to stop.
type end int

const (
	afterLease end = iota // another replica may be drawing the noon
	afterDrain            // the replica is stopping
)

// over watches the work.
func (w *watch) over(work singleton.Func) singleton.Func {
	return func(ctx context.Context, run singleton.Run) error {
		u := &underway{ctx: ctx}
		w.mu.Lock()
		if w.draws == nil {
			w.draws = map[*underway]struct{}{}
		}
		w.draws[u] = struct{}{}
		w.mu.Unlock()
		unhook := context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			u.see()
		})
		defer func() {
			unhook()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.draws, u)
		}()
		return work(ctx, run)
	}
}

// see notes the end of the context. It asks Err, which looks at the clock: after
// a pause of the process no timer may have run yet.
func (u *underway) see() {
	if u.ended.IsZero() && u.ctx.Err() != nil {
		u.ended = time.Now()
	}
}

// overdue tells for how long a draw has gone on after its context ended for that
// reason; 0 if none has.
func (w *watch) overdue(why end) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for u := range w.draws {
		u.see()
		drained := errors.Is(context.Cause(u.ctx), singleton.ErrStopping)
		if !u.ended.IsZero() && drained == (why == afterDrain) {
			longest = max(longest, time.Since(u.ended))
		}
	}
	return longest
}
