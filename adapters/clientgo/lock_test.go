package clientgo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func mustConflict(tb testing.TB, err error) {
	tb.Helper()
	if !apierrors.IsConflict(err) {
		tb.Errorf("error %v, want a Conflict", err)
	}
}

// mustNotRelease asserts that a release is refused, and that client-go does not repeat it.
func mustNotRelease(tb testing.TB, err error) {
	tb.Helper()
	if !errors.Is(err, lockcore.ErrNotHeld) || apierrors.IsConflict(err) {
		tb.Errorf("error %v, want ErrNotHeld and no Conflict", err)
	}
}

func mustNotFound(tb testing.TB, l *clientgo.Lock) {
	tb.Helper()
	ler, raw, err := l.Get(tb.Context())
	if !apierrors.IsNotFound(err) || ler != nil || raw != nil {
		tb.Errorf("Get: %v, %q, %v, want a NotFound", ler, raw, err)
	}
}

// Other Locks read what one has written, and every write changes the raw bytes.
func TestRecordRoundTrip(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.lock("a"), e.lock("b")
		mustNotFound(e, a)
		mustNotFound(e, b)
		at := time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.UTC)
		written := resourcelock.LeaderElectionRecord{
			HolderIdentity: "a", LeaseDurationSeconds: 15, AcquireTime: metav1.NewTime(at),
			RenewTime: metav1.NewTime(at.Add(time.Microsecond)), LeaderTransitions: 7,
			Strategy: "OldestEmulationVersion", PreferredHolder: "c",
		}
		must(e, a.Create(e.Context(), written))
		mustConflict(e, b.Create(e.Context(), ler("b", 15)))
		before := ""
		for range 3 {
			_, now := e.get(a)
			if now == before {
				e.Errorf("after a write, the raw bytes are still %q", now)
			}
			before = now
			for _, l := range []*clientgo.Lock{a, b} {
				ler, raw := e.get(l)
				if !ler.AcquireTime.Equal(&written.AcquireTime) || !ler.RenewTime.Equal(&written.RenewTime) {
					e.Errorf("times %v, %v", ler.AcquireTime, ler.RenewTime)
				}
				ler.AcquireTime, ler.RenewTime = written.AcquireTime, written.RenewTime
				testenv.Equal(e, "the record", *ler, written)
				testenv.Equal(e, "the raw bytes", raw, now)
			}
			must(e, a.Update(e.Context(), written)) // the same values again
		}
		stored := e.Raw.Get(e.Context(), recordKey).Val()
		for _, want := range []string{`"holderIdentity":"a"`, `"leaseDurationSeconds":15`, `"acquireTime":"2026-03-29T02:30:00.123456Z"`, `"leaseTransitions":7`} {
			if !strings.Contains(stored, want) {
				e.Errorf("redis-cli would show %q, want %s in it", stored, want)
			}
		}
		if a.Identity() != "a" || !strings.Contains(a.Describe(), lockName) {
			e.Errorf("identity %q, %q", a.Identity(), a.Describe())
		}
	})
}

// Two candidates with the same identity are separate, even on one client: neither takes the other's record for its own.
// (This fails if Get returns the identity unchanged, or if a Lock does not recognize its own write
// without an answer.)
func TestNamesakes(t *testing.T) {
	onBoth(t, func(e *env) {
		opt, f := e.Link()
		c, cfg := e.client(opt), clientgo.Config{Identity: "web-0"}
		first, second := e.lockOn(c, cfg), e.lockOn(c, cfg)
		must(e, first.Create(e.Context(), ler("web-0", 15)))
		const other = "web-0 (another candidate of this identity)"
		for range 2 {
			if mine, theirs := e.holder(first), e.holder(second); mine != "web-0" || theirs != other {
				e.Errorf("first reads %q, second reads %q", mine, theirs)
			}
			must(e, first.Update(e.Context(), ler("web-0", 15)))
		}
		testenv.Equal(e, "the holder that a third one reads", e.holder(e.lock("web-1")), "web-0")
		// A write whose reply was lost still belongs to its writer.
		e.lose(lockcoretest.SwallowReply, f, func(ctx context.Context) error { return first.Update(ctx, ler("web-0", 15)) })
		testenv.Equal(e, "the holder that the first one reads", e.holder(first), "web-0")
		// Another candidate takes the record after the elector has waited long enough.
		e.get(second)
		must(e, second.Update(e.Context(), ler("web-0", 15)))
		if mine, theirs := e.holder(second), e.holder(first); mine != "web-0" || theirs != other {
			e.Errorf("second reads %q, first reads %q", mine, theirs)
		}
	})
}

// A release is an Update without a holder. It releases only the Lock's own lease: client-go's elector
// reads the record first, which another candidate may have written. (This fails if any read record can
// be released, or if a takeover without an answer counts as done.)
func TestRelease(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.lock("a"), e.lock("b")
		release := ler("", 1)
		must(e, a.Create(e.Context(), ler("a", 15)))
		e.get(b)
		mustNotRelease(e, b.Update(e.Context(), release))
		// Also not after a takeover with an unknown outcome.
		c, f := e.linked("c")
		must(e, e.Raw.ScriptFlush(e.Context()).Err()) // so that c sends the whole script
		must(e, e.Raw.Del(e.Context(), recordKey).Err())
		must(e, c.Create(e.Context(), ler("c", 15)))
		must(e, e.Raw.Del(e.Context(), recordKey).Err())
		must(e, a.Create(e.Context(), ler("a", 15)))
		e.get(c)
		e.lose(lockcoretest.DropRequest, f, func(ctx context.Context) error { return c.Update(ctx, ler("c", 15)) })
		mustNotRelease(e, c.Update(e.Context(), release))
		e.get(a)
		must(e, a.Update(e.Context(), release))
		now, _ := e.get(b)
		if now.HolderIdentity != "" || now.LeaseDurationSeconds != 1 {
			e.Errorf("after the release: %+v", now)
		}
		must(e, b.Update(e.Context(), ler("b", 15)))
		e.get(a) // as the elector does before it releases
		mustNotRelease(e, a.Update(e.Context(), release))
		testenv.Equal(e, "the holder", e.holder(a), "b")
	})
}

// The record was lost. No Update restores it, but a Create does.
func TestRecordLost(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.lock("a"), e.lock("b")
		must(e, a.Create(e.Context(), ler("a", 15)))
		must(e, e.Raw.FlushAll(e.Context()).Err())
		mustConflict(e, a.Update(e.Context(), ler("a", 15)))
		mustNotFound(e, a)
		if err := a.Update(e.Context(), ler("a", 15)); !errors.Is(err, clientgo.ErrNotRead) {
			e.Errorf("Update: %v, want ErrNotRead", err)
		}
		mustNotFound(e, b)
		must(e, b.Create(e.Context(), ler("b", 15)))
		mustConflict(e, a.Create(e.Context(), ler("a", 15)))
		testenv.Equal(e, "the holder", e.holder(a), "b")
		must(e, e.Raw.Set(e.Context(), recordKey, "nr1 A.1 {", 0).Err())
		if _, _, err := a.Get(e.Context()); err == nil || apierrors.IsNotFound(err) {
			e.Errorf("a record that is no spec of a Lease: %v", err)
		}
	})
}

// lose runs a write whose request or reply is lost until it times out.
func (e *env) lose(kind string, f *lockcoretest.Faults, write func(ctx context.Context) error) *lockcoretest.Rule {
	e.Helper()
	rule := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: writes, Count: 1})
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	go func() {
		_ = rule.Wait(ctx, 1)
		cancel()
	}()
	if err := write(ctx); !errors.Is(err, lockcore.ErrUnknown) || apierrors.IsConflict(err) {
		e.Errorf("error %v, want one that is ErrUnknown", err)
	}
	return rule
}

// A write that has timed out arrives after the next Get, as when the leadership ends during a renewal.
// The release that follows is not a Conflict. (This fails if Get rules out a write in flight.)
func TestLateWrite(t *testing.T) {
	onBoth(t, func(e *env) {
		a, f := e.linked("a")
		must(e, a.Create(e.Context(), ler("a", 15)))
		_, before := e.get(a)
		late := e.lose(lockcoretest.DelayRequest, f, func(ctx context.Context) error { return a.Update(ctx, ler("a", 15)) })
		if _, now := e.get(a); now != before {
			e.Fatal("it was not late")
		}
		late.Lift()
		e.Until("it has arrived", func() bool {
			return !strings.Contains(e.Raw.Get(e.Context(), recordKey).Val(), strings.Fields(before)[0])
		})
		must(e, a.Update(e.Context(), ler("", 1)))
		testenv.Equal(e, "the holder", e.holder(a), "")
	})
}

// The server does not answer or is down. Every call ends by itself in the documented time, with an
// error that is neither NotFound nor Conflict. (This fails with a RequestTimeout of 1 s, with which
// client-go's attempt to release delays the end of OnStartedLeading's context beyond the lease.)
func TestServerAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		l, f := e.linked("a")
		must(e, l.Create(e.Context(), ler("a", 15)))
		const bound = 3*400*time.Millisecond + 10*time.Millisecond // RequestTimeout, three times
		for _, outage := range []func(){
			func() { f.Partition() },
			func() {
				// Dials that started in the outage still return connections, which are cut, too.
				f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
				f.Heal()
				synctest.Wait()
				f.Cut()
			},
		} {
			outage()
			for _, call := range []func() error{
				func() error { _, _, err := l.Get(e.Context()); return err },
				func() error { return l.Update(e.Context(), ler("a", 15)) },
			} {
				begin := time.Now()
				if err := call(); err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
					e.Errorf("error %v", err)
				}
				if took := time.Since(begin); took > bound {
					e.Errorf("it took %v", took)
				}
			}
		}
	})
}
