package election

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/stopping"
)

// GetLeader returns the identity of the leader that this replica observed last. It is
// empty if no replica leads, or before the first observation. It is updated while Run is
// running. The leader may have died since; Record asks the server.
func (le *LeaderElector) GetLeader() string {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.observed.Holder
}

// An observer watches the record and calls OnNewLeader, on a goroutine that exists only
// while there are calls to make.
type observer struct {
	le    *LeaderElector
	stop  func() // watching
	crash context.CancelCauseFunc
	wg    sync.WaitGroup

	mu        sync.Mutex
	leader    string // the latest
	announced string // what OnNewLeader was called with last
	busy      bool   // the goroutine exists
	ended     bool
	crashed   bool
	panics    *PanicError
}

// observe starts to watch the record. crash ends Run.
func (le *LeaderElector) observe(crash context.CancelCauseFunc) *observer {
	p := &observer{le: le, crash: crash, announced: le.announced}
	p.stop = le.election.Watch(p.changed)
	return p
}

// changed takes a new record and returns at once.
func (p *observer) changed(r record.Record) {
	p.le.mu.Lock()
	p.le.observed = r
	asked, request := p.le.asked()
	p.le.mu.Unlock()
	p.le.obey(asked, request)
	if p.le.callbacks.OnNewLeader == nil || r.Holder == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader = r.Holder
	if !p.busy && !p.ended && p.leader != p.announced {
		p.busy = true
		p.wg.Go(p.announce)
	}
}

// next returns the leader to announce, if there is one.
func (p *observer) next() (identity string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.crashed || p.leader == p.announced {
		p.busy = false
		return "", false
	}
	p.announced = p.leader
	return p.announced, true
}

// announce calls OnNewLeader until there is no new leader.
func (p *observer) announce() {
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

// end waits for a call that has not returned, until the deadline, and lets its panic or
// Goexit continue in Run's caller.
func (p *observer) end(deadline *stopping.Deadline) {
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
	announced, panics, crashed := p.announced, p.panics, p.crashed
	p.mu.Unlock()
	p.le.announced = announced
	switch {
	case panics != nil:
		panic(panics)
	case crashed:
		runtime.Goexit()
	}
}
