package lease

import (
	"context"
	"sync"
	"time"
)

// A loop calls a step on one goroutine, with one timer.
type loop struct {
	kick  chan struct{}
	ctx   context.Context // of the goroutines
	stop  context.CancelFunc
	first sync.Once // the first lease starts the goroutine
	wg    sync.WaitGroup
}

func newLoop() loop {
	ctx, stop := context.WithCancel(context.Background())
	return loop{kick: make(chan struct{}, 1), ctx: ctx, stop: stop}
}

// start starts the goroutine. step returns how long to sleep. A value in jumps ends the sleep.
func (l *loop) start(step func() time.Duration, jumps <-chan struct{}) {
	l.wg.Go(func() {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			timer.Reset(step())
			select {
			case <-timer.C:
			case <-l.kick:
			case <-jumps:
			case <-l.ctx.Done():
				return
			}
		}
	})
}

func (l *loop) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// close stops the goroutines. All leases must have ended.
func (l *loop) close() {
	l.stop()
	l.wg.Wait()
}
