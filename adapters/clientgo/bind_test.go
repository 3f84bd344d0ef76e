package clientgo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// validFor is how long a bound context is valid after the last write was sent.
const validFor = leaseDuration - leaseDuration/100 - 2*time.Millisecond

func mustEnd(ctx context.Context, e *env, cause error) {
	e.Helper()
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), cause) {
		e.Errorf("error %v, cause %v, want %v", ctx.Err(), context.Cause(ctx), cause)
	}
	select {
	case <-ctx.Done():
	default:
		e.Error("not done")
	}
}

// clocked is linked with a clock that can jump.
func (e *env) clocked() (*clientgo.Lock, *testenv.Clock, *lockcoretest.Faults) {
	e.Helper()
	clock, f := testenv.NewClock(), lockcoretest.NewFaults()
	client := e.ClientOn(clock.Now, e.Bubble.OptionsVia(f), lockcore.Config{})
	return e.lockOn(client, clientgo.Config{Identity: "a"}), clock, f
}

// What ends a bound context, and with which cause. The check reads the clock: after a pause, no timer has fired yet. The
// validity counts from the sending of a write, and a release ends it before it is sent. The next write begins another hold.
func TestFault01_BindEnds(t *testing.T) {
	t.Parallel()
	type holder struct {
		*env
		lock         *clientgo.Lock
		clock        *testenv.Clock
		net          *lockcoretest.Faults
		parent, stop func()
	}
	enough := errors.New("enough")
	update := func(h *holder, of string) { must(h, h.lock.Update(h.Context(), ler(of, 15))) }
	steal := func(h *holder) {
		thief := h.lockOn(h.client(h.Direct()), clientgo.Config{Identity: "thief"})
		h.get(thief)
		must(h, thief.Update(h.Context(), ler("thief", 15)))
	}
	// slow sends a write whose request or reply is delayed, and calls during meanwhile.
	slow := func(h *holder, kind, of string, during func()) {
		held := h.net.Inject(h, lockcoretest.Fault{Kind: kind, Match: writes, Count: 1})
		written := make(chan error, 1)
		go func() { written <- h.lock.Update(h.Context(), ler(of, 15)) }()
		must(h, held.Wait(h.Context(), 1))
		during()
		held.Lift()
		must(h, <-written)
	}
	for name, c := range map[string]struct {
		end   func(h *holder, ctx context.Context)
		cause error
	}{
		"its parent ends": {func(h *holder, _ context.Context) { h.parent() }, enough},
		"stop":            {func(h *holder, _ context.Context) { h.stop() }, context.Canceled},
		"a pause": {func(h *holder, ctx context.Context) {
			child, stop := context.WithCancel(ctx)
			defer stop()
			h.clock.Advance(leaseDuration)
			mustEnd(ctx, h.env, lockcore.ErrLeaseExpired)
			mustEnd(child, h.env, lockcore.ErrLeaseExpired)
		}, lockcore.ErrLeaseExpired},
		"a pause, and then a write": {func(h *holder, _ context.Context) {
			h.clock.Advance(leaseDuration)
			update(h, "a")
		}, lockcore.ErrLeaseExpired},
		"a write that is answered late": {func(h *holder, ctx context.Context) {
			slow(h, lockcoretest.DelayReply, "a", func() { h.clock.Advance(validFor - time.Second) })
			must(h, ctx.Err())
			h.clock.Advance(time.Second)
		}, lockcore.ErrLeaseExpired},
		"a release": {func(h *holder, ctx context.Context) {
			slow(h, lockcoretest.DelayRequest, "", func() { mustEnd(ctx, h.env, lockcore.ErrReleased) })
		}, lockcore.ErrReleased},
		"a Get finds another's record": {func(h *holder, _ context.Context) {
			steal(h)
			h.get(h.lock)
		}, lockcore.ErrLeaseLost},
		"an Update finds another's record": {func(h *holder, _ context.Context) {
			steal(h)
			mustConflict(h, h.lock.Update(h.Context(), ler("a", 15)))
		}, lockcore.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				h := &holder{env: e}
				h.lock, h.clock, h.net = e.clocked()
				none, stop := h.lock.Bind(e.Context())
				mustEnd(none, e, lockcore.ErrNotHeld)
				stop()
				must(e, h.lock.Create(e.Context(), ler("a", 15)))
				parent, cancel := context.WithCancelCause(e.Context())
				ctx, stop := h.lock.Bind(parent)
				h.parent, h.stop = func() { cancel(enough) }, stop
				must(e, ctx.Err())
				c.end(h, ctx)
				mustEnd(ctx, e, c.cause)
				stop()
				cancel(nil)
				if errors.Is(c.cause, lockcore.ErrLeaseLost) {
					return
				}
				update(h, "a")
				again, stop := h.lock.Bind(e.Context())
				defer stop()
				must(e, again.Err())
				h.clock.Advance(validFor)
				mustEnd(again, e, lockcore.ErrLeaseExpired)
			})
		})
	}
}

// A Get that was sent before the last write does not end the hold.
func TestBindAndALateGet(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		must(e, e.lock("thief").Create(e.Context(), ler("thief", 15)))
		e.get(lock)
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: testenv.Command("get"), Count: 1})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = lock.Get(e.Context())
		}()
		must(e, late.Wait(e.Context(), 1))
		must(e, lock.Update(e.Context(), ler("a", 15)))
		ctx, stop := lock.Bind(e.Context())
		defer stop()
		late.Lift()
		<-done
		testenv.Must(e, ctx.Err())
	})
}

// The leader's machine was suspended, or not, and its network does not work. Timers stopped meanwhile. The first request
// of the elector corrects the timer, so the context ends with the validity, or at that request if the validity is over by
// then, and before another candidate leads.
func TestFault05_BindEndsInTimeAfterASuspension(t *testing.T) {
	t.Parallel()
	for name, suspended := range map[string]time.Duration{"beyond its validity": 2 * leaseDuration, "for a part of it": leaseDuration / 2, "not at all": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				lock, clock, f := e.clocked()
				a := e.elect(lock, timing{}).elected()
				b := e.elect(e.lock("b"), timing{})
				ofElector, stop := lock.Bind(a.leading)
				defer stop()
				ctx, stop := lock.Bind(context.Background()) // the elector does not end this context
				defer stop()
				e.Pass(time.Minute)
				last, _ := e.get(e.lock("c"))
				f.Partition()
				clock.Advance(suspended)
				resumed := time.Now()
				want := max(last.RenewTime.Add(validFor).Add(-suspended).Sub(resumed), 0)
				const latest = retryPeriod // the first request
				<-ctx.Done()
				if after := time.Since(resumed); after < want-time.Millisecond || after > max(want, latest)+time.Millisecond || b.leads() {
					e.Errorf("done %v after the resumption, want %v, or at the first request in %v; another leads: %v", after, want, latest, b.leads())
				}
				mustEnd(ctx, e, lockcore.ErrLeaseExpired)
				if ofElector.Err() == nil {
					e.Error("the one that hangs on the elector's lasts longer")
				}
				late, stop := lock.Bind(context.Background())
				defer stop()
				mustEnd(late, e, lockcore.ErrLeaseExpired)
				f.Heal()
			})
		})
	}
}
