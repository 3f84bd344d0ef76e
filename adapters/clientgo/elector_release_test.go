package clientgo_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A regular stop releases the record, and the next candidate leads at its next poll.
func TestElectorReleasesOnCancel(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.elect(e.lock("a"), timing{}).elected()
		b := e.elect(e.lock("b"), timing{})
		e.Pass(time.Minute)
		stopped := time.Now()
		a.stop()
		now, _ := e.get(e.lock("c"))
		if now.HolderIdentity != "" || now.LeaseDurationSeconds != 1 {
			e.Errorf("after the release the record says %+v", now)
		}
		b.elected()
		if took := b.since().Sub(stopped); took > lookPeriod {
			e.Errorf("b led after %v", took)
		}
		if now, _ := e.get(e.lock("c")); now.HolderIdentity != "b" || now.LeaderTransitions != 1 {
			e.Errorf("the record says %+v", now)
		}
	})
}

// An elector is stopped after another candidate has taken the record, before it has detected that.
// It reads once and releases nothing. (This fails if the release is a Conflict, which client-go
// repeats immediately.)
func TestElectorReleasesNothingOfAnothers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		a := e.elect(lock, timing{}).elected()
		e.Pass(time.Minute + retryPeriod/2) // between two renewals
		thief := e.lock("thief")
		e.get(thief)
		must(e, thief.Update(e.Context(), ler("thief", 15)))
		// Each read takes a while, so that a loop of reads ends.
		reads := f.Inject(e, lockcoretest.Fault{
			Kind: lockcoretest.DelayReply, Match: testenv.Command("get"), Delay: time.Second / 4,
		})
		a.stop()
		testenv.Equal(e, "reads", reads.Fired(), 1)
		testenv.Equal(e, "the holder", e.holder(e.lock("c")), "thief")
	})
}

// The leadership ends during a request that is lost or whose reply is lost. The record is released
// nevertheless.
func TestElectorReleasesAmidARenewal(t *testing.T) {
	for _, kind := range []string{lockcoretest.SwallowReply, lockcoretest.DropRequest} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				lock, f := e.linked("a")
				a := e.elect(lock, timing{}).elected()
				rule := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: writes, Count: 1})
				must(e, rule.Wait(e.Context(), 1))
				a.stop()
				if now, _ := e.get(e.lock("c")); now.HolderIdentity != "" || now.LeaseDurationSeconds != 1 {
					e.Errorf("after the release the record says %+v", now)
				}
			})
		})
	}
}

// A migration from a Lease to Redis in two steps with client-go's MultiLock: a candidate that uses
// both locks respects a candidate that uses only one of them.
func TestMultiLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client(e.Direct())
		lock := func(name, identity string) *clientgo.Lock {
			l := testenv.Call(clientgo.NewLock(c, name, clientgo.Config{Identity: identity})).Must(e)
			return l
		}
		both := &resourcelock.MultiLock{Primary: lock("old", "b"), Secondary: lock("new", "b")} //nolint:staticcheck // it is deprecated with the locks that were no Leases, and still holds any two
		old := e.elect(lock("old", "a"), timing{}).elected()
		mixed := e.elect(both, timing{})
		e.Pass(time.Minute)
		if mixed.leads() || !old.leads() {
			e.Fatal("together with the holder of the old lock")
		}
		old.stop()
		mixed.elected()
		young := e.elect(lock("new", "c"), timing{})
		e.Pass(time.Minute)
		if young.leads() || !mixed.leads() {
			e.Fatal("together with the holder of both locks")
		}
		mixed.stop()
		young.elected()
	})
}
