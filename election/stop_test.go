package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An elector pauses after a term that is lost, or ends early, before its next campaign: first RetryPeriod, then longer,
// up to LeaseDuration, without end. After a resignation of a leader that has worked, or a term that lasted for a while,
// the pauses start again.
//
// Mutants: no pause; the pause does not grow; every resignation has a pause; a term longer than RetryPeriod has no
// pause; the pause never starts again.
func TestFault83_PausesBetweenTerms(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := election.Config{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
		a := e.replica(e.Client("a"), cfg)
		tasks := make(chan func(ctx context.Context))
		var starts, ends []time.Duration
		a.work = func(ctx context.Context) {
			starts = append(starts, e.Clock())
			select {
			case <-ctx.Done():
			case task := <-tasks:
				task(ctx)
			}
			ends = append(ends, e.Clock())
		}
		a.run().leads(1)
		n := 1
		// after checks the pause between a term, which ends after so much work, and the next one.
		after := func(what string, work time.Duration, end func(), mean time.Duration) {
			t.Helper()
			e.Pass(work)
			end()
			n++
			a.leads(n)
			if pause := starts[n-1] - ends[n-2]; pause < mean*8/10-time.Millisecond || pause > mean*12/10+20*time.Millisecond {
				t.Errorf("%s: the pause was %v, want %v ± 20 %%", what, pause, mean)
			}
		}
		lose := func() { must(e, e.Raw.Del(e.Context(), key("lock")).Err()) }
		resign := func() { must(e, a.le.Resign(e.Context())) }
		returns := func() { tasks <- func(context.Context) {} }
		within := func() {
			tasks <- func(ctx context.Context) {
				mustIs(e, a.le.TransferTo(ctx, "absent"), election.ErrNoCandidate)
				mustIs(e, a.le.Resign(over()), context.Canceled)
				<-ctx.Done()
			}
		}
		mean := float64(cfg.RetryPeriod)
		for i := range 60 {
			after(fmt.Sprint("loss ", i+1), 0, lose, time.Duration(mean))
			mean = min(mean*1.5, float64(cfg.LeaseDuration))
		}
		after("a resignation", cfg.RetryPeriod, resign, 0)
		after("a loss after a resignation", 0, lose, cfg.RetryPeriod)
		after("another resignation", cfg.RetryPeriod, resign, 0)
		after("a resignation at once", 0, resign, cfg.RetryPeriod)
		after("a resignation by the work", 0, within, cfg.RetryPeriod*3/2)
		after("another resignation of a leader that has worked", cfg.RetryPeriod, resign, 0)
		after("another resignation by the work", 0, within, cfg.RetryPeriod)
		after("work of a second", time.Second, returns, cfg.RetryPeriod*3/2)
		after("work that is longer than RetryPeriod", 3*time.Second, returns, 4500*time.Millisecond)
		after("work of almost a lease", 14*time.Second, returns, 6750*time.Millisecond)
		after("a long term that is lost", 17*time.Second, lose, cfg.RetryPeriod)
		after("no work", 0, returns, cfg.RetryPeriod*3/2)
		after("long work", 16*time.Second, returns, cfg.RetryPeriod)
	})
}

// If work returns early, the next candidate leads at once, and this replica is no candidate during a pause. A replica in
// its pause is ready, and Run returns at once.
func TestFault83_WorkThatReturns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := election.Config{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
		a, b := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg)
		returns := make(chan struct{})
		a.work = func(context.Context) { <-returns }
		e.queueUp(a, b)
		begin := e.Clock()
		returns <- struct{}{}
		b.leads(1)
		if took := e.Clock() - begin; took > 20*time.Millisecond {
			t.Errorf("the next candidate leads after %v", took)
		}
		must(e, a.le.Ready())
		if e.Exists(key("queue")) {
			t.Error("it is a candidate during its pause")
		}
		e.queued(1)
		b.stop()
		a.leads(2)
		returns <- struct{}{}
		_ = a.ended(2)
		begin = e.Clock()
		a.stop()
		if took := e.Clock() - begin; took > 20*time.Millisecond {
			t.Errorf("Run returned %v after its context had ended", took)
		}
		if a.le.Leader() != "" || e.record()["released"] == "" {
			t.Errorf("%q leads, and the record is %v", a.le.Leader(), e.record())
		}
		mustIs(e, context.Cause(a.ctx), election.ErrResigned)
		e.oneAtATime()
	})
}

// A candidate is stopped at any instant of its grant. Its record names it only while it leads. If all electors stop at
// once, nobody is named as the leader, also if the last one that had the lock did not lead.
//
// Caught mutants: a release ends only a record of its own attempt; the record is written before the work begins.
func TestStoppedWhileGranted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		slow, f := e.Linked("b")
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 3 * time.Millisecond})
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 5 * time.Millisecond})
		one, third := e.Client("a"), e.Client("c")
		trials := testenv.Size(150, 1500)
		never := 0
		for i := range trials {
			a, b, c := e.replica(one, quick()), e.replica(slow, quick()), e.replica(third, quick())
			e.queueUp(a, b, c)
			a.cancel(errStopped)
			time.Sleep(rand.N(40 * time.Millisecond))
			b.cancel(errStopped)
			if i%2 == 0 {
				c.recorded(1)
			}
			c.cancel(errStopped)
			for _, r := range []*replica{a, b, c} {
				r.wait()
			}
			e.Pass(50 * time.Millisecond) // the rest of the release
			_, led := b.term()
			never += 1 - led
			if got := e.record(); got["holder"] != "" || got["released"] == "" || e.Exists(key("lock")) {
				t.Fatalf("trial %d: after %d terms of b, the record is %v", i, led, got)
			}
		}
		if never < trials/4 || never > trials*3/4 {
			t.Errorf("%d of %d were stopped before they led", never, trials)
		}
	})
}

// Run returns within ShutdownTimeout of the end of its context, although the server does
// not answer: for a leader, a candidate, and a replica that is about to lead.
//
// Mutants: the release has its own limit; so has the update of the record; the deadline is
// counted from the work's return.
func TestFault84_StopWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	for _, within := range []time.Duration{0, 3 * time.Second} {
		for name, delay := range map[string]time.Duration{"at once": 0, "between": 700 * time.Millisecond, "late": 4 * time.Second} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(e *env) {
					cfg := quick()
					cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = time.Minute, 40*time.Second, 8*time.Second
					cfg.ShutdownTimeout = within
					a, b := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg)
					a.work = func(ctx context.Context) {
						<-ctx.Done()
						time.Sleep(delay)
					}
					e.queueUp(a, b)
					e.Bubble.Hang()
					most := within
					if most == 0 {
						most = 10 * time.Second
					}
					begin := e.Clock()
					a.cancel(errStopped)
					b.cancel(errStopped)
					b.wait()
					if took := e.Clock() - begin; took > most {
						t.Errorf("the candidate took %v, want at most %v", took, most)
					}
					a.wait()
					// One try of a fifth of ShutdownTimeout is made even after work that
					// took longer.
					if took := e.Clock() - begin; took > max(most, delay+most/5) {
						t.Errorf("the leader took %v, want at most %v", took, max(most, delay+most/5))
					}
					if a.err != nil || b.err != nil || a.stops != 1 {
						t.Errorf("Run: %v and %v, %d stops", a.err, b.err, a.stops)
					}
					e.Bubble.Unhang()
				})
			})
		}
	}
}

// An OnNewLeader that blocks delays no term, no renewal and no hand-over, is never called concurrently, and is then called
// with the newest leader. If it blocks forever, Run returns within ShutdownTimeout.
func TestFault63_OnNewLeaderBlocks(t *testing.T) {
	inBubble(t, func(e *env) {
		hold := make(chan struct{})
		elector := func(identity string, newLeader func(string)) *election.LeaderElector {
			callbacks := idle
			callbacks.OnNewLeader = newLeader
			return testenv.Call(election.NewLeaderElector(e.Client(identity), electionName, callbacks, quick())).Must(e)
		}
		var notified []string
		stuck := func(string) { <-hold; panic("late") }
		a, b := elector("a", stuck), elector("b", stuck)
		slow := elector("slow", func(identity string) {
			notified = append(notified, identity)
			if len(notified) == 1 {
				time.Sleep(2 * time.Minute)
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 3)
		for i, le := range []*election.LeaderElector{a, b, slow} {
			go func() { done <- le.Run(ctx) }()
			if i == 0 {
				e.Until("a leads", a.IsLeader)
			} else {
				e.queued(int64(i))
			}
		}
		time.Sleep(time.Minute)
		if !a.IsLeader() || slow.Leader() != "a" {
			t.Errorf("after renewals, a leads: %v; the leader is %q", a.IsLeader(), slow.Leader())
		}
		must(e, a.Resign(e.Context()))
		e.Until("b leads", b.IsLeader)
		e.queued(2)
		must(e, b.Resign(e.Context()))
		e.Until("the third one leads", slow.IsLeader)
		time.Sleep(2 * time.Minute)
		testenv.Equal(t, "the leaders of which the slow one was notified", strings.Join(notified, " "), "a slow")
		begin := e.Clock()
		cancel()
		for range 3 {
			must(e, <-done)
		}
		if took := e.Clock() - begin; took > 10*time.Second {
			t.Errorf("Run returned after %v", took)
		}
		close(hold) // its panic no longer has a caller
		time.Sleep(time.Second)
	})
}
