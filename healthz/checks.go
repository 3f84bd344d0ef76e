package healthz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Checker is a check with a name of lower-case letters, digits and dashes. Check returns an error if the checked
// thing is not healthy. Several requests share one call, so Check never runs twice at the same time.
type Checker struct {
	Name  string
	Check func(ctx context.Context) error
}

// Overdue fails when work continues for longer than tolerance after it had to stop:
// because its lease has ended, so that another replica may do the same work, or because
// its drain is over. Use it for liveness, since a restart ends the work.
//
// check is the Check of an election.LeaderElector (it reports what client-go's
// LeaderHealthzAdaptor reports) or a singleton.Runner.
func Overdue(name string, check func(tolerance time.Duration) error, tolerance time.Duration) Checker {
	return Checker{name, func(context.Context) error { return check(tolerance) }}
}

// Ready fails when ready returns an error. ready is the Ready of a singleton.Runner or an
// election.LeaderElector. Use it for readiness, never for liveness. It proves more than a PING, which
// a server may answer while it refuses every other request.
func Ready(name string, ready func() error) Checker {
	return Checker{name, func(context.Context) error { return ready() }}
}

// Staleness fails when the last success is older than maxAge. It also fails if the last
// success is more than maxAge in the future, which means that a clock is wrong. Use it
// neither for liveness nor for readiness: a job that fails on every replica is no reason to
// restart a replica or to remove it from a load balancer.
func Staleness(name string, last func() time.Time, maxAge time.Duration) Checker {
	return Checker{name, func(context.Context) error {
		at := last()
		age := time.Since(at)
		switch {
		case at.IsZero():
			return errors.New("healthz: no success yet")
		case age > maxAge:
			return fmt.Errorf("healthz: the last success is %s old; at most %s is allowed", age.Truncate(time.Second), maxAge)
		case age < -maxAge: // not -age > maxAge: the least Duration has no opposite
			return fmt.Errorf("healthz: the last success is %s in the future, so its age is unknown; a clock is wrong", time.Until(at).Truncate(time.Second))
		}
		return nil
	}}
}

// A probe is a Checker and its call in progress. Requests share the
// call, so a check that hangs is called once.
type probe struct {
	Checker
	mu      sync.Mutex
	pending *answer
}

type answer struct {
	done chan struct{}
	err  error
}

// run calls the check, or waits for the call in progress.
func (p *probe) run(ctx context.Context, timeout time.Duration) error {
	p.mu.Lock()
	a := p.pending
	if a == nil {
		a = &answer{done: make(chan struct{}), err: errors.New("healthz: the check called runtime.Goexit")}
		p.pending = a
		go p.call(context.WithoutCancel(ctx), timeout, a)
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-time.After(timeout):
		return fmt.Errorf("healthz: no answer within %s", timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *probe) call(ctx context.Context, timeout time.Duration, a *answer) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			a.err = fmt.Errorf("healthz: the check panicked: %v", r)
		}
		p.mu.Lock()
		p.pending = nil
		p.mu.Unlock()
		close(a.done)
	}()
	a.err = p.Check(ctx)
}
