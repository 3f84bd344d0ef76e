package clientgo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// The record of a leader is overwritten or lost. If another candidate has it, the bound context ends at the next request,
// and the leader at most RenewDeadline later. It does not release that record. A lost record is created again.
func TestElectorLosesTheRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		take   func(e *env)
		holder string
	}{
		"overwritten": {func(e *env) {
			thief := e.lock("thief")
			e.get(thief)
			must(e, thief.Update(e.Context(), ler("thief", 15)))
		}, "thief"},
		"lost and created": {func(e *env) {
			must(e, e.Raw.FlushAll(e.Context()).Err())
			must(e, e.lock("thief").Create(e.Context(), ler("thief", 15)))
		}, "thief"},
		"lost": {func(e *env) { must(e, e.Raw.FlushAll(e.Context()).Err()) }, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				lock := e.lock("a")
				a := e.elect(lock, timing{}).elected()
				ctx, stop := lock.Bind(a.leading)
				defer stop()
				e.Pass(time.Minute + 300*time.Millisecond) // between two renewals
				taken := time.Now()
				c.take(e)
				<-ctx.Done()
				if took := time.Since(taken); took > retryPeriod {
					e.Errorf("the bound context was done %v after the loss", took)
				}
				mustEnd(ctx, e, lockcore.ErrLeaseLost)
				if c.holder == "a" {
					e.Pass(time.Minute)
				} else {
					<-a.done
					e.Pass(time.Millisecond) // client-go calls OnNewLeader on a separate goroutine
					if took := a.ended.Sub(taken); took > renewDeadline+lookPeriod || !a.noted("stopped") || !a.noted("leader thief") {
						e.Errorf("it led on for %v, and noted %v", took, a.events)
					}
				}
				if holder := e.holder(e.lock("b")); holder != c.holder || a.leads() != (holder == "a") || a.le.IsLeader() != (holder == "a") {
					e.Errorf("holder %q, leads %v", holder, a.leads())
				}
			})
		})
	}
}

// A leader that cannot reach the server stops within its RenewDeadline. The next candidate leads
// after the lease has expired, not earlier, so there are never two leaders.
func TestElectorCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		for round := range 10 {
			lock, f := e.linked(fmt.Sprint("a", round))
			a := e.elect(lock, timing{})
			e.Pass(20 * time.Second)
			a.elected()
			b := e.elect(e.lock(fmt.Sprint("b", round)), timing{})
			e.Pass(time.Duration(round) * 700 * time.Millisecond)
			last, _ := e.get(e.lock("c"))
			f.Partition()
			<-a.done
			if b.leads() {
				e.Fatalf("round %d: both lead", round)
			}
			b.elected()
			if took := b.since().Sub(last.RenewTime.Time); took < leaseDuration || took > leaseDuration+2*lookPeriod {
				e.Errorf("round %d: b led %v after the last renewal", round, took)
			}
			if over := b.since().Sub(a.ended); over <= 0 {
				e.Errorf("round %d: b led %v before a had stopped", round, -over)
			}
			f.Heal()
			b.stop()
		}
	})
}
