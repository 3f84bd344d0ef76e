package lease

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A loop calls a function on one goroutine, whenever its timer fires or wake is sent. expiry and renewals embed it.
type loop struct {
	wake  retry.Signal    // causes a step
	ctx   context.Context // context of the goroutines, which stop ends
	stop  context.CancelFunc
	first sync.Once      // for the first lease, which starts the goroutine
	wg    sync.WaitGroup // the goroutine, and the goroutines that its steps start
}

func newLoop() loop {
	ctx, stop := context.WithCancel(context.Background())
	return loop{wake: retry.NewSignal(), ctx: ctx, stop: stop}
}

// start starts the goroutine. step returns how long to sleep. A value in jumps, which may be nil, ends the sleep.
func (l *loop) start(step func() time.Duration, jumps <-chan struct{}) {
	l.wg.Go(func() {
		timer := time.NewTimer(time.Hour) // until the first step
		defer timer.Stop()
		for {
			timer.Reset(step())
			select {
			case <-timer.C:
			case <-l.wake:
			case <-jumps:
			case <-l.ctx.Done():
				return
			}
		}
	})
}

// close stops the goroutines. All leases must have ended.
func (l *loop) close() {
	l.stop()
	l.wg.Wait()
}
