package healthz

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Check returns nil if the checked thing is healthy, and the reason otherwise.
// Several requests share one call, so a Check never runs twice at the same time.
type Check func(ctx context.Context) error

// A Checker is a Check with the name under which it is reported and excluded: 1 to 63
// lower-case letters, digits and dashes.
type Checker struct {
	Name  string
	Check Check
}

// Ping always succeeds. Every handler includes it.
func Ping() Checker {
	return Checker{Name: "ping", Check: func(context.Context) error { return nil }}
}

// ErrUnhealthy is wrapped by the errors of the checkers in this package.
var ErrUnhealthy = errors.New("healthz: unhealthy")

// Overdue fails when work continues for longer than tolerance after it had to stop:
// because its lease has ended, so that another replica may do the same work, or because
// its drain is over. Use it for liveness, since a restart ends such work.
//
// check is the Check of an election.LeaderElector (it reports what client-go's
// LeaderHealthzAdaptor reports), a singleton.Runner or a singleton.Daemon. tolerance is
// the time that the work has to stop in.
func Overdue(name string, check func(tolerance time.Duration) error, tolerance time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error { return check(tolerance) }}
}

// Staleness fails when the last success is older than most. It also fails if the last
// success is more than `most` in the future, which means that a clock is wrong. Use it
// neither for liveness nor for readiness: a job that fails on every replica is no reason to
// restart a replica or to remove it from a load balancer.
func Staleness(name string, last func() time.Time, most time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error {
		at := last()
		if at.IsZero() {
			return fmt.Errorf("%w: no success yet", ErrUnhealthy)
		}
		switch age := time.Since(at); {
		case age > most:
			return fmt.Errorf("%w: the last success is %s old; at most %s is allowed", ErrUnhealthy, age.Truncate(time.Second), most)
		case age < -most: // not -age > most: the least age has no opposite
			return fmt.Errorf("%w: the last success is %s in the future, so its age is unknown; a clock is wrong", ErrUnhealthy, time.Until(at).Truncate(time.Second))
		}
		return nil
	}}
}

// Ready fails when ready returns an error. ready is the Ready of a singleton.Runner, a
// singleton.Daemon or an election.LeaderElector. Use it for readiness, never for
// liveness. It proves more than Reachable: a server that answers PING may still refuse
// every request that matters.
func Ready(name string, ready func() error) Checker {
	return Checker{Name: name, Check: func(context.Context) error { return ready() }}
}

// Reachable fails when ping returns an error. ping tests the connection to Redis or to a
// database. Use it for the readiness of a service whose requests need that server, never
// for liveness. A successful PING proves little: a read-only replica, a server that is
// out of memory, and a server that grants the user too few permissions answer it as well.
// See Ready.
func Reachable(name string, ping func(ctx context.Context) error) Checker {
	return Checker{Name: name, Check: ping}
}
