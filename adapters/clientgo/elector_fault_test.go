package clientgo_test

import (
	"fmt"
	"testing"
	"time"
)

// The record of a leader is overwritten. The leader ends at most RenewDeadline later, and does not
// release the other candidate's record.
func TestElectorLosesTheRecord(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(e *env){
		"overwritten": func(e *env) {
			thief := e.lock("thief")
			e.get(thief)
			must(e, thief.Update(e.Context(), ler("thief", 15)))
		},
		"lost and created": func(e *env) {
			must(e, e.Raw.FlushAll(e.Context()).Err())
			must(e, e.lock("thief").Create(e.Context(), ler("thief", 15)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				a := e.elect(e.lock("a"), timing{}).elected()
				e.Pass(time.Minute)
				taken := time.Now()
				take(e)
				<-a.done
				e.Pass(time.Millisecond) // client-go calls OnNewLeader on a separate goroutine
				if took := a.ended.Sub(taken); took > renewDeadline+lookPeriod {
					e.Errorf("it led on for %v", took)
				}
				if a.leads() || !a.noted("stopped") || !a.noted("leader thief") || a.le.IsLeader() {
					e.Errorf("it noted %v", a.events)
				}
				if holder := e.holder(e.lock("b")); holder != "thief" {
					e.Errorf("holder %q", holder)
				}
			})
		})
	}
}

// The record is lost and no other candidate creates it. The leader creates it and continues to lead.
func TestElectorCreatesALostRecord(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.elect(e.lock("a"), timing{}).elected()
		must(e, e.Raw.FlushAll(e.Context()).Err())
		e.Pass(time.Minute)
		if !a.leads() || e.holder(e.lock("b")) != "a" {
			e.Error("it does not lead on")
		}
	})
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
