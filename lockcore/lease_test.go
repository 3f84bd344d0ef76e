package lockcore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A lease is renewed without limit, unless the server hangs. It ends at t0 + TTL - margin of its last renewal, or at
// ValidFor, before the server frees the name. Answers that arrive later do not revive it. The clock of its Client is
// far ahead of the clocks of others.
func TestFault04_47_WhenLeasesEnd(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, row := range map[string]struct {
		cfg   lockcore.LeaseConfig
		hangs bool          // the server, after 100 s
		ends  time.Duration // 0: not within 100 s
	}{
		"renewed":               {cfg: ttl(3 * s)},
		"not renewed":           {cfg: lockcore.LeaseConfig{TTL: 3 * s, NoRenewal: true}, ends: 2968 * ms},
		"the server hangs":      {cfg: ttl(10 * s), hangs: true},
		"ValidFor":              {cfg: lockcore.LeaseConfig{TTL: 10 * s, ValidFor: 6 * s}, hangs: true},
		"ValidFor, not renewed": {cfg: lockcore.LeaseConfig{TTL: 10 * s, ValidFor: 6 * s, NoRenewal: true}, ends: 6 * s},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				clock := testenv.NewClock()
				clock.Advance(1000 * time.Hour)
				m := e.mutex(e.ClientOn(clock.Now, e.Direct(), lockcore.Config{}), "orders", row.cfg)
				began := e.Clock()
				lease := e.try(m)
				if row.ends == 0 {
					e.Pass(100 * s)
					must(e, context.Cause(lease.Context()))
					e.refused(e.mutex(e.Client("b"), "orders", ttl(s)))
				}
				deadline := began + row.ends
				switch valid := cmp.Or(row.cfg.ValidFor, row.cfg.TTL*99/100-2*ms); {
				case row.hangs:
					if deadline = e.Clock() + lease.Remaining(); lease.Remaining() > valid || lease.Remaining() < valid-row.cfg.TTL/3 {
						e.Errorf("%v remain", lease.Remaining())
					}
					e.Bubble.Hang()
				case row.ends == 0:
					e.unlock(lease)
					return
				}
				cause := e.ended(lease)
				mustIs(e, cause, lockcore.ErrLeaseExpired)
				equal(e, "the end of the lease", e.Clock(), deadline)
				e.Bubble.Unhang()
				e.WaitIdle() // late renewals were executed
				if e.stored("orders") == "" || lease.Context().Err() == nil || lease.Remaining() != 0 {
					e.Errorf("the server freed the name first, or a late reply has revived the lease: %v remain", lease.Remaining())
				}
				mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
				e.Pass(s)
				e.unlock(e.lock(m))
			})
		})
	}
}

// A lease is renewed at once when its Client notices that the slot of its name has moved, and no other lease is.
func TestFault21_LeasesAreRenewedAfterAMove(t *testing.T) {
	inBubble(t, func(e *env) {
		var epoch atomic.Int64 // from 1 on, the lower half of the slots, with "orders", is at another address
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			now := int(epoch.Load())
			switch {
			case cmd != "CLUSTER":
				return false
			case strings.EqualFold(args[0], "info"):
				p.WriteBulk(fmt.Sprintf("cluster_state:ok\r\ncluster_current_epoch:%d\r\n", now))
			default:
				p.WriteLen(2)
				for first, port := range map[int]int{0: 1 + now, 8192: 1} {
					p.WriteLen(3)
					p.WriteInt(first)
					p.WriteInt(first + 8191)
					p.WriteLen(2)
					p.WriteBulk("127.0.0.1")
					p.WriteInt(port)
				}
			}
			return true
		})
		opt := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: e.Direct().Dialer}
		c := e.clientOf(redis.NewClusterClient(opt), lockcore.Config{})
		moves, stays := e.try(e.mutex(c, "orders", ttl(time.Hour))), e.try(e.mutex(c, "a", ttl(time.Hour)))
		e.Pass(time.Minute)
		epoch.Store(1)
		call(lockcore.Locks(e.Context(), c, nil)).Must(e) // asks for the slots
		e.WaitIdle()
		equal(e, "how much longer the lease that has moved is valid", moves.Remaining()-stays.Remaining(), time.Minute)
	})
}

// A bound context ends with the lease, with its parent, or by stop. Neither of these, nor the end of the context of
// Lock, ends the lease. Its own context has the values of that context.
func TestBind(t *testing.T) {
	onAllKinds(t, func(e *env) {
		type key struct{}
		m := e.mutex(e.Client("a"), "orders", ttl(5*time.Second))
		boss := errors.New("boss said no")
		for cause, end := range map[error]func(lease *lockcore.Lease, parent context.CancelCauseFunc, stop func()){
			boss:                 func(_ *lockcore.Lease, parent context.CancelCauseFunc, _ func()) { parent(boss) },
			lockcore.ErrReleased: func(lease *lockcore.Lease, _ context.CancelCauseFunc, _ func()) { e.unlock(lease) },
			context.Canceled:     func(_ *lockcore.Lease, _ context.CancelCauseFunc, stop func()) { stop() },
		} {
			ctx, cancel := context.WithCancel(context.WithValue(e.Context(), key{}, "value"))
			lease := call(m.Lock(ctx)).Must(e)
			cancel()
			if lease.Context().Err() != nil || lease.Context().Value(key{}) != "value" {
				e.Errorf("err %v, value %v", lease.Context().Err(), lease.Context().Value(key{}))
			}
			parent, cancelParent := context.WithCancelCause(e.Context())
			work, stop := lease.Bind(parent)
			child, cancelChild := context.WithCancel(work)
			must(e, work.Err())
			end(lease, cancelParent, stop)
			<-child.Done()
			mustIs(e, context.Cause(work), cause)
			mustIs(e, context.Cause(child), cause)
			if cause != lockcore.ErrReleased { //nolint:errorlint // the same one
				must(e, lease.Context().Err())
				must(e, lease.Unlock(ctx)) // although it is over
			}
			equal(e, "the lock after Unlock", e.stored("orders"), "")
			stop()
			cancelChild()
			cancelParent(nil)
		}
	})
}

// When the caller's context is done and the server hangs, Do waits as long as Unlock, and not for the TTL. The
// context ends during the work, or while the release waits for its answer.
func TestFault07_DoReturnsWhenTheServerHangs(t *testing.T) {
	for _, during := range []time.Duration{0, time.Second} {
		for bound, d := range map[time.Duration]time.Duration{10 * time.Second: time.Hour, 4 * time.Second: 4 * time.Second} {
			t.Run(fmt.Sprint(during, " ", d), func(t *testing.T) {
				inBubble(t, func(e *env) {
					c, f := e.Linked("a")
					ctx, cancel := context.WithCancel(e.Context())
					defer cancel()
					begun := e.Clock()
					err := c.Do(ctx, "orders", ttl(d), func(context.Context) error {
						f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
						if time.AfterFunc(during, cancel); during == 0 {
							<-ctx.Done()
						}
						return nil
					})
					if took := e.Clock() - begun; err == nil || took > during+bound {
						e.Errorf("Do returned after %v: %v", took, err)
					}
				})
			})
		}
	}
}

// Do holds the lock while fn runs, and releases it however fn ends: with an error, by a panic, with its goroutine, or
// after its context. A lease that ended meanwhile is reported.
func TestFault53_Do(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		last := uint64(0)
		sad := errors.New("sad")
		do := func(ctx context.Context, fn func(ctx context.Context) error) error {
			e.Helper()
			err := c.Do(ctx, "orders", lockcore.LeaseConfig{}, func(ctx context.Context) error {
				token := lockcore.FromContext(ctx).Token()
				if ctx.Err() != nil || token <= last || e.stored("orders") == "" {
					e.Errorf("context %v, token %d after %d, lock %q", ctx.Err(), token, last, e.stored("orders"))
				}
				last = token
				return fn(ctx)
			})
			mustNotBe(e, err, lockcore.ErrUnknown)
			return err
		}
		for _, want := range []error{nil, nil, sad} {
			if err := do(e.Context(), func(context.Context) error { return want }); want == nil {
				must(e, err)
			} else {
				mustIs(e, err, want)
				mustNotBe(e, err, lockcore.ErrNotHeld)
			}
		}
		mustIs(e, do(e.Context(), func(context.Context) error {
			return e.Raw.Del(e.Context(), e.key("orders", "lock")).Err()
		}), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		ctx, cancel := context.WithCancel(e.Context())
		err := do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		mustIs(e, err, context.Canceled)
		mustNotBe(e, err, lockcore.ErrNotHeld)
		for name, end := range map[string]func(){"panic": func() { panic("at the disco") }, "Goexit": runtime.Goexit} {
			before := last
			var panicked any
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { panicked = recover() }()
				_ = do(e.Context(), func(context.Context) error { end(); return nil })
				e.Errorf("%s did not end the goroutine", name)
			}()
			<-ended
			if last == before || (name == "panic") != (panicked == "at the disco") {
				e.Errorf("%s became %v, or fn was not called", name, panicked)
			}
			equal(e, "the lock after "+name, e.stored("orders"), "")
		}
		equal(e, "the lock", e.stored("orders"), "")
	})
}

// A foreign attempt, a second call and a call after the end get different errors. None of them affects the holder.
func TestFault48_ThreeWaysToUnlockWrongly(t *testing.T) {
	onAllKinds(t, func(e *env) {
		clock := testenv.NewClock()
		c, other := e.ClientOn(clock.Now, e.Direct(), lockcore.Config{}), e.mutex(e.Client("other"), "orders", ttl(5*time.Second))
		causes := []error{lockcore.ErrReleased, lockcore.ErrLeaseLost, lockcore.ErrLeaseExpired, lockcore.ErrClosed}
		for _, row := range []struct {
			name  string
			cause error
			end   func(lease *lockcore.Lease)
		}{
			{"twice", lockcore.ErrReleased, e.unlock},
			{"lost", lockcore.ErrLeaseLost, func(lease *lockcore.Lease) {
				e.Raw.Del(e.Context(), e.key("orders", "lock"))
				mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
			}},
			{"lost unnoticed", lockcore.ErrLeaseLost, func(*lockcore.Lease) { e.Raw.Del(e.Context(), e.key("orders", "lock")) }},
			{"expired", lockcore.ErrLeaseExpired, func(lease *lockcore.Lease) {
				e.Raw.Del(e.Context(), e.key("orders", "lock")) // as it expires at the server
				clock.Advance(time.Minute)
				e.Until("the clock was read", func() bool { return lease.Context().Err() != nil })
			}},
		} {
			cfg := ttl(30 * time.Second)
			if row.name == "lost" {
				cfg = ttl(3 * time.Second)
			}
			lease := e.try(e.mutex(c, "orders", cfg))
			row.end(lease)
			holder := e.try(other)
			err := lease.Unlock(e.Context())
			mustIs(e, err, lockcore.ErrNotHeld, row.cause)
			for _, cause := range causes {
				if cause != row.cause { //nolint:errorlint // the same one
					mustNotBe(e, err, cause)
				}
			}
			e.WaitIdle()
			if holder.Context().Err() != nil || e.stored("orders") == "" {
				e.Errorf("%s: a wrong Unlock took the lock from its holder", row.name)
			}
			e.unlock(holder)
		}
	})
}

// Work gets its lease from its context. It cannot release it. A context without work has a lease that is not held.
func TestFromContext(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		c, none := e.Client("a"), lockcore.FromContext(e.Context())
		if none != nil || none.Token() != 0 || none.Name() != "" || none.Slot() != -1 || none.Remaining() != 0 {
			e.Errorf("token %d, name %q, slot %d, %v remain", none.Token(), none.Name(), none.Slot(), none.Remaining())
		}
		unbound, end := none.Bind(e.Context())
		defer end()
		rw := e.rw(c, "orders", "a", ttl(3*time.Second))
		for _, err := range []error{
			none.Check(), none.Unlock(e.Context()), context.Cause(none.Context()), context.Cause(unbound), rw.Downgrade(e.Context(), none),
		} {
			mustIs(e, err, lockcore.ErrNotHeld)
		}
		outer, inner := e.try(e.mutex(c, "orders", ttl(3*time.Second))), e.try(e.mutex(c, "items", ttl(3*time.Second)))
		bound, stop := inner.Bind(outer.Context())
		defer stop()
		type key struct{}
		for of, ctx := range map[*lockcore.Lease]context.Context{
			outer: context.WithValue(outer.Context(), key{}, 1), inner: bound,
		} {
			l := lockcore.FromContext(ctx)
			if l == nil || l.Name() != of.Name() || l.Token() != of.Token() || l.Remaining() != of.Remaining() || l.Check() != nil {
				e.Fatalf("%s: FromContext returns %+v", of.Name(), l)
			}
			mustIs(e, l.Unlock(e.Context()), lockcore.ErrNotHeld)
			must(e, of.Check())
		}
		borrowed := lockcore.FromContext(bound)
		e.unlock(inner)
		mustIs(e, borrowed.Check(), lockcore.ErrReleased)
		if borrowed.Remaining() != 0 || lockcore.FromContext(bound).Token() != inner.Token() {
			e.Errorf("after the release, %v remain", borrowed.Remaining())
		}
	})
}

// LeaseConfig.Wait limits the wait, and not the work of Do.
func TestWait(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(3 * time.Second)
		held := e.try(e.mutex(e.Client("a"), "orders", cfg))
		cfg.Wait = 4 * time.Second
		c := e.Client("b")
		begin := e.Clock()
		_, err := e.mutex(c, "orders", cfg).Lock(e.Context())
		mustIs(e, err, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		if by, ok := errors.AsType[*lockcore.HeldError](err); !ok || by.Holder != "a" || !strings.Contains(err.Error(), "LeaseConfig.Wait, 4s") {
			e.Errorf("Lock: %v", err)
		}
		if took := e.Clock() - begin; took < 4*time.Second || took > 4100*time.Millisecond {
			e.Errorf("it waited for %v", took)
		}
		e.unlock(held)
		must(e, c.Do(e.Context(), "orders", cfg, func(ctx context.Context) error {
			e.Pass(time.Minute)
			return ctx.Err()
		}))
	})
}

// The process is frozen after it has sent the request. The TTL may have passed when it reads the grant, which must
// then be ignored.
func TestFault03_FrozenBetweenRequestAndReply(t *testing.T) {
	for name, taken := range map[string]bool{"name still free": false, "name taken in the meantime": true} {
		t.Run(name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				e.warmAll()
				clock := testenv.NewClock()
				opt, f := e.Link()
				m := e.mutex(e.ClientOn(clock.Now, opt, lockcore.Config{}), "orders", ttl(10*time.Second))
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
				p := e.going(m.TryLock)
				e.WaitIdle()
				if late.Fired() != 1 || e.stored("orders") == "" {
					e.Fatal("the reply is not held back")
				}
				// Both clocks move by more than the TTL; no timer runs.
				clock.Advance(11 * time.Second)
				e.Bubble.StepClock(11 * time.Second)
				if taken {
					e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Second)))
				}
				late.Lift()
				lease, err := p.wait()
				if held, ok := errors.AsType[*lockcore.HeldError](err); taken && (!ok || held.Holder != "b" || held.TTL <= 0) {
					e.Errorf("lease %v, error %v: want a HeldError with the content of the last answer", lease, err)
				}
				// The repeated acquire extended the lock, and validity counts from then.
				if !taken && (err != nil || lease.Remaining() <= 0 || lease.Remaining() > e.pttl("orders")) {
					e.Errorf("%v, or longer than the server's %v", err, e.pttl("orders"))
				}
			})
		})
	}
}
