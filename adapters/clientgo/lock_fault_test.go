package clientgo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

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
