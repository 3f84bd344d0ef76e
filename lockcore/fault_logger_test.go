package lockcore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// stuckLogger returns a logger that blocks in each line until the test ends.
func stuckLogger(e *env) logr.Logger {
	free := make(chan struct{})
	e.Cleanup(func() { close(free) })
	return funcr.New(func(string, string) { <-free }, funcr.Options{Verbosity: 100})
}

// A logger blocks forever, and the server is healthy. One lease is lost. The others are
// renewed, answer at once and are released, and the Client closes.
func TestFault63_StuckLoggerStopsNothing(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		c := e.ClientWith(e.Direct(), lockcore.Config{Logger: stuckLogger(e)})
		cfg := ttl(3 * time.Second)
		lost := e.try(e.mutex(c, "lost", cfg))
		var leases []*lockcore.Lease
		for i := range 8 {
			leases = append(leases, e.try(e.mutex(c, fmt.Sprint("kept-", i), cfg)))
		}
		e.Raw.Del(e.Context(), e.key("lost", "lock"))
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		mustIs(e, lost.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		e.Pass(time.Minute)
		began := time.Now()
		for _, lease := range leases {
			if err := lease.Context().Err(); err != nil || lease.Remaining() <= 0 {
				e.Errorf("%s: %v, %s left", lease.Name(), err, lease.Remaining())
			}
			e.unlock(lease)
		}
		if took := time.Since(began); took != 0 {
			e.Errorf("it took %s", took)
		}
		if err := c.Close(e.Context()); err != nil {
			e.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			e.Errorf("Close took %s for a logger that takes no line", took)
		}
	})
}

// In an outage go-redis logs no failed dials, although the program gives it no logger and
// it would write to standard error. Leases, a waiter and a subscription need connections.
//
// Caught mutant: go-redis dials by itself.
func TestFault64_NoLinesAboutDials(t *testing.T) { //nolint:paralleltest // go-redis has one logger
	inBubble(t, func(e *env) {
		opt, f := e.Link()
		c := e.ClientWith(opt, lockcore.Config{})
		e.try(e.mutex(c, "held", ttl(2*time.Second)))
		e.try(e.mutex(e.Client("b"), "orders", ttl(time.Hour)))
		w := e.queued(e.mutex(c, "orders", ttl(2*time.Second)))
		e.WaitIdle()
		before := testenv.DependencyLog.String()
		refused := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		f.Cut()
		e.Pass(time.Minute)
		if _, err := e.mutex(c, "other", ttl(time.Second)).TryLock(e.Context()); err == nil {
			e.Error("a lock was acquired without a server")
		}
		if refused.Fired() < 20 {
			e.Errorf("only %d dials failed", refused.Fired())
		}
		if lines := strings.TrimPrefix(testenv.DependencyLog.String(), before); lines != "" {
			e.Errorf("go-redis wrote: %.500s", lines)
		}
		refused.Lift()
		w.cancel()
	})
}
