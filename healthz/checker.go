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

// Election fails when a leader has held on for longer than tolerance after its
// lease was over, which is what client-go's LeaderHealthzAdaptor watches for:
// check is the elector's Check.
func Election(name string, check func(tolerance time.Duration) error, tolerance time.Duration) Checker {
	return Checker{Name: name, Check: func(context.Context) error { return check(tolerance) }}
}

// Working fails when work goes on although its lease is over: ended tells since
// when the lease has been over while the work has not returned, zero if that is
// not so. tolerance is what the work is given to stop in.
func Working(name string, ended func() time.Duration, tolerance time.Duration) Checker {
	return overdue(name, ended, tolerance, "its lease ended")
}

// Drained fails when work goes on although the drain of a stop by choice is over:
// since tells for how long it has gone on since, zero if that is not so. tolerance
// is what the work is given to stop in.
func Drained(name string, since func() time.Duration, tolerance time.Duration) Checker {
	return overdue(name, since, tolerance, "its drain was over")
}

// overdue fails when work goes on for longer than tolerance after what was its end.
func overdue(name string, since func() time.Duration, tolerance time.Duration, end string) Checker {
	return Checker{Name: name, Check: func(context.Context) error {
		if d := since(); d > tolerance {
			return fmt.Errorf("%w: work goes on %s after %s; it may take %s to stop", ErrUnhealthy, d, end, tolerance)
		}
		return nil
	}}
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

// Reachable fails when ping does: of a Redis or a database. It belongs to
// readiness where requests need the thing, and never to liveness.
func Reachable(name string, ping func(ctx context.Context) error) Checker {
	return Checker{Name: name, Check: ping}
}
