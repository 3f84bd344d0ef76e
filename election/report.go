package election

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/stopping"
)

// GetLeader is the identity of the leader as this replica has heard last, while
// Run is under way; empty if nobody leads or nothing was heard yet. The leader
// may have died since: Record asks the server.
func (le *LeaderElector) GetLeader() string {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.observed.Holder
}

// reports hears who leads, and calls OnNewLeader, on a goroutine that lives only
// while there is something to tell.
type reports struct {
	le    *LeaderElector
	stop  func()
	crash context.CancelCauseFunc
	wg    sync.WaitGroup

	mu      sync.Mutex
	pending string // the leader, if it is to be told
	told    string
	busy    bool
	ended   bool
	crashed bool
	panics  *PanicError
}

func (le *LeaderElector) report(crash context.CancelCauseFunc) *reports {
	p := &reports{le: le, crash: crash, told: le.told}
	p.stop = le.election.Watch(p.hear)
	return p
}

// hear takes the news and returns at once.
func (p *reports) hear(r record.Record) {
	p.le.mu.Lock()
	p.le.observed = r
	p.le.mu.Unlock()
	if p.le.callbacks.OnNewLeader == nil || r.Holder == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = r.Holder
	if !p.busy && !p.ended && p.pending != p.told {
		p.busy = true
		p.wg.Go(p.tell)
	}
}

// next is who is to be told of, if anybody.
func (p *reports) next() (identity string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.crashed || p.pending == p.told {
		p.busy = false
		return "", false
	}
	p.told = p.pending
	return p.told, true
}

func (p *reports) tell() {
	normal := false
	defer func() {
		if normal {
			return
		}
		value := recover() // nil after a Goexit
		p.mu.Lock()
		p.crashed = true
		if value != nil {
			p.panics = &PanicError{Value: value, Stack: debug.Stack()}
		}
		p.mu.Unlock()
		p.le.log.Error(errCallback, "OnNewLeader panicked or called runtime.Goexit; ending Run")
		p.crash(errCrashed)
	}()
	for {
		identity, ok := p.next()
		if !ok {
			normal = true
			return
		}
		p.le.callbacks.OnNewLeader(identity)
	}
}

// end waits for a call that is under way, until the deadline, and lets its panic or
// Goexit go on to Run's caller.
func (p *reports) end(deadline *stopping.Deadline) {
	p.stop()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	over := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(over)
	}()
	if !deadline.Wait(over) {
		p.le.log.Error(stopping.ErrDeadline, "Run returns although OnNewLeader has not returned")
	}
	p.mu.Lock()
	told, panics, crashed := p.told, p.panics, p.crashed
	p.mu.Unlock()
	p.le.told = told
	switch {
	case panics != nil:
		panic(panics)
	case crashed:
		runtime.Goexit()
	}
}
