package lockcore_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A holder has two of three servers, as it does not reach the third. The clock of one of the two is
// stepped, so its lock expires there. Another client, which knows the clock, does not get the lock with
// that server and the third. A clock that is set back, or runs at another rate, is no such step.
func TestFault35_ClockSteppedOnABareMajority(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		var log testenv.Log
		other := e.clientWith(lockcore.QuorumConfig{Config: lockcore.Config{Identity: "other", Logger: log.Info("")}})
		orders := e.mutex(other, "orders")
		known := e.lock(orders)
		time.Sleep(10 * time.Millisecond) // it has the answers of all servers
		e.unlock(known)
		cut := e.options()
		cut[2].Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("cut off") }
		holder := e.clientOf(cut, lockcore.QuorumConfig{Config: lockcore.Config{Identity: "holder"}, MaxTTL: e.maxTTL})
		m, err := holder.Mutex("orders", lockcore.LeaseConfig{TTL: e.maxTTL, NoRenewal: true})
		must(e, err)
		l := e.lock(m)
		time.Sleep(time.Second)
		e.bubbles[1].StepClock(time.Minute)
		next := e.lock(orders)
		if l.Context().Err() == nil {
			e.Error("there are two holders")
		}
		e.unlock(next)
		steps := func() int {
			synctest.Wait() // another goroutine writes the log
			return log.Count("the clock of a server of the quorum was stepped")
		}
		if n := steps(); n != 1 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
		e.bubbles[1].StepClock(-time.Minute)
		for range 3 {
			e.unlock(e.lock(orders))
			time.Sleep(time.Hour)
			e.bubbles[1].StepClock(3 * time.Second)
		}
		if n := steps(); n != 1 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
		e.unlock(e.lock(orders))
		time.Sleep(time.Hour)
		e.bubbles[1].StepClock(3800 * time.Millisecond) // more than a clock can be wrong after an hour
		e.unlock(e.lock(orders))
		if n := steps(); n != 2 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
	})
}
