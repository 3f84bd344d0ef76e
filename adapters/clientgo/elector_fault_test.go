package clientgo_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
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

// Two candidates have the same identity. One leads. The other one takes over after the lease of the
// first, like any other candidate. (This fails if Get returns the identity unchanged: client-go
// then renews the other candidate's record.)
func TestElectorNamesakes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("web-0")
		first := e.elect(lock, timing{}).elected()
		second := e.elect(e.lock("web-0"), timing{})
		for range 600 {
			e.Pass(time.Second)
			if !first.leads() || second.leads() || second.le.IsLeader() {
				e.Fatal("not just the first leads")
			}
		}
		if leader := second.le.GetLeader(); leader != "web-0 (another candidate of this identity)" {
			e.Errorf("the second takes %q for the leader", leader)
		}
		f.Partition()
		for !second.leads() {
			e.Pass(100 * time.Millisecond)
			if first.leads() && second.leads() {
				e.Fatal("both lead")
			}
		}
		f.Heal()
		e.Pass(time.Minute)
		if first.leads() || !second.leads() {
			e.Error("the first leads again")
		}
	})
}

// Many candidates on a network that loses requests and replies and breaks connections: there are
// never two leaders, and one in the end. (This fails with a RequestTimeout of 1 s, with which
// client-go's attempt to release delays the end of OnStartedLeading's context beyond the lease.)
func TestElectorsOnABadNetwork(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var all []*candidate
		var nets []*lockcoretest.Faults
		for i := range 5 {
			lock, f := e.linked(fmt.Sprint("c", i))
			nets = append(nets, f)
			all = append(all, e.elect(lock, timing{}))
		}
		terms := map[time.Time]int{}
		var lost []*lockcoretest.Rule
		for step := range 1200 {
			switch step % 11 {
			case 0, 3:
				kind := lockcoretest.SwallowReply
				if step%11 == 3 {
					kind = lockcoretest.ResetAfter
				}
				for _, f := range nets { // one of them is the leader's network
					rule, err := f.Add(lockcoretest.Fault{Kind: kind, Match: writes, Count: 1})
					must(e, err)
					lost = append(lost, rule)
				}
			case 5:
				nets[step%len(nets)].Cut()
			}
			switch step % 60 {
			case 20: // longer than a lease
				for i, c := range all {
					if c.leads() {
						nets[i].Partition()
					}
				}
			case 40:
				for _, f := range nets {
					f.Heal()
				}
			}
			e.Pass(1300 * time.Millisecond)
			var leaders []string
			for i, c := range all {
				select {
				case <-c.done: // a new process would start in the same way
					all[i] = e.elect(c.lock, timing{})
					continue
				default:
				}
				if c.leads() {
					leaders = append(leaders, c.lock.Identity())
					terms[c.since()] = i
				}
			}
			if len(leaders) > 1 {
				e.Fatalf("step %d: %v lead", step, leaders)
			}
		}
		if len(terms) < 15 {
			e.Errorf("%d terms: the network was not bad", len(terms))
		}
		for _, f := range nets {
			f.Heal()
		}
		for _, rule := range lost {
			rule.Lift()
		}
		e.Until("one leads", func() bool {
			return slices.ContainsFunc(all, (*candidate).leads)
		})
		fired := 0
		for _, rule := range lost {
			fired += rule.Fired()
		}
		if fired == 0 {
			e.Error("no reply was lost")
		}
		e.Logf("%d terms in %v, %d replies lost", len(terms), time.Since(e.Start), fired)
	})
}
