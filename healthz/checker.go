package healthz

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Check returns nil if all is well, or what is not. It is asked by several
// requests at once at times, but never by two at the same time.
type Check func(ctx context.Context) error

// A Checker is a check with the name under which it is reported and excluded:
// 1 to 63 lower-case letters, digits and dashes.
type Checker struct {
	Name  string
	Check Check
}

// Ping is well as long as it can be asked. It is in every handler.
func Ping() Checker {
	return Checker{Name: "ping", Check: func(context.Context) error { return nil }}
}

// ErrUnhealthy is what the checkers of this package fail with.
var ErrUnhealthy = errors.New("healthz: unhealthy")

// Overdue fails when work goes on for longer than tolerance after it was to stop: its
// lease is over, so that another replica may do it as well, or its drain is. It is the
// check for liveness, as a restart is what helps then.
//
// check is the Check of an election.LeaderElector (what client-go's
// LeaderHealthzAdaptor watches for), a singleton.Runner or a singleton.Daemon.
// tolerance is what the work is given to stop in.
func Overdue(name string, check func(tolerance time.Duration) error, tolerance time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error { return check(tolerance) }}
}

// ClockOffset fails when this machine's wall clock is further than most from the
// server's. Nothing here depends on the wall clock, but logs and other software do.
func ClockOffset(name string, offset func() time.Duration, most time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error {
		if d := offset(); d.Abs() > most {
			return fmt.Errorf("%w: the clock is %s ahead of the server's; at most %s is allowed", ErrUnhealthy, d, most)
		}
		return nil
	}}
}

// Staleness fails when the last success is older than most. It is in no default
// set: a job that fails everywhere is no reason to restart or to unplug a replica.
func Staleness(name string, last func() time.Time, most time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error {
		at := last()
		if at.IsZero() {
			return fmt.Errorf("%w: it has not succeeded yet", ErrUnhealthy)
		}
		if age := time.Since(at); age > most {
			return fmt.Errorf("%w: the last success is %s old; at most %s is allowed", ErrUnhealthy, age.Truncate(time.Second), most)
		}
		return nil
	}}
}

// Ready fails when ready does: the Ready of a singleton.Runner, a singleton.Daemon or an
// election.LeaderElector. It belongs to readiness, and never to liveness. It tells more
// than Reachable: a server that answers may refuse every request that matters.
func Ready(name string, ready func() error) Checker {
	return Checker{Name: name, Check: func(context.Context) error { return ready() }}
}

// Reachable fails when ping does: of a Redis or a database. It belongs to
// readiness where requests need the thing, and never to liveness. Note what ping proves:
// a read-only replica, a server without memory or with a user of too few rights answers
// PING as well. See Ready.
func Reachable(name string, ping func(ctx context.Context) error) Checker {
	return Checker{Name: name, Check: ping}
}
