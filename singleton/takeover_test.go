package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// hang is work that goes on until its context ends, on its first attempts.
func hang(attempts int) func(context.Context, singleton.Run) error {
	return func(ctx context.Context, run singleton.Run) error {
		if run.Attempt > attempts {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// three makes three replicas of one job.
func (f *fleet) three(schedule string, work func(context.Context, singleton.Run) error, cfg singleton.JobConfig) map[string]*replica {
	f.Helper()
	all := map[string]*replica{}
	for _, name := range []string{"a", "b", "c"} {
		r := f.replica(name, singleton.Config{})
		r.add("draw", schedule, work, cfg)
		r.run()
		all[name] = r
	}
	return all
}

// The replica that runs a tick is killed: another runs it again within TTL and
// half a second, as attempt 2, with a greater token.
// Mutants: an expired record is not taken over; a waiting replica looks again
// only when it hears of something; the takeover keeps the token.
func TestFault54_TheHolderOfATickIsKilled(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		all := f.three("@every 1s", hang(1), singleton.JobConfig{})
		first := f.begun("draw", 1)[0]
		died := time.Now()
		cut := all[first.replica].die()
		second := f.begun("draw", 2)[1]
		if second.replica == first.replica || !second.run.Tick.Equal(first.run.Tick) || second.run.Attempt != 2 || second.run.Token <= first.run.Token {
			t.Errorf("after %+v of %s came %+v of %s", first.run, first.replica, second.run, second.replica)
		}
		if took := second.begin.Sub(died); f.bubble != nil && took > 2500*time.Millisecond {
			t.Errorf("the takeover took %v, the TTL is 2s", took)
		}
		record := f.recorded("draw", 1)[0]
		if record.Outcome != lockcore.OutcomeSucceeded || record.Attempt != 2 || record.Token != second.run.Token {
			t.Errorf("record is %+v", record)
		}
		f.alone("draw")
		lockcoretest.MustFire(t, cut)
	})
}

// A replica that starts while a tick is run takes it over in time, too: it has not
// tried to claim it, and knows of the hold by looking.
// Mutant: who sees a tick being run waits for the next look, whatever the hold.
func TestFault54_ALateComerTakesOver(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		a := f.replica("a", singleton.Config{})
		a.add("draw", "@every 1h", hang(1), singleton.JobConfig{})
		a.run()
		f.begun("draw", 1)
		b := f.replica("b", singleton.Config{})
		b.add("draw", "@every 1h", hang(1), singleton.JobConfig{})
		b.run()
		f.pass(5 * time.Second)
		died := time.Now()
		cut := a.die()
		second := f.begun("draw", 2)[1]
		if took := second.begin.Sub(died); second.replica != "b" || second.run.Attempt != 2 || took > 2500*time.Millisecond {
			t.Errorf("after %v came %+v of %s", took, second.run, second.replica)
		}
		lockcoretest.MustFire(t, cut)
	})
}

// Each replica that tries a tick is killed: after MaxAttempts it is recorded as
// unknown, for the effect may have come about, and the next tick is run.
// Mutants: attempts are not counted at a takeover; recorded as failed; never
// recorded, so that the job stands still.
func TestFault54_AllAttemptsAreKilled(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		all := f.three("@every 1m", hang(2), singleton.JobConfig{MaxAttempts: 2})
		tick := f.begun("draw", 1)[0].run.Tick
		cuts := []*lockcoretest.Rule{}
		for n := 1; n <= 2; n++ {
			e := f.begun("draw", n)[n-1]
			if e.run.Attempt != n || !e.run.Tick.Equal(tick) {
				t.Errorf("attempt %d is %+v", n, e.run)
			}
			cuts = append(cuts, all[e.replica].die())
		}
		record := f.recorded("draw", 1)[0]
		if record.Outcome != lockcore.OutcomeUnknown || record.Attempt != 2 || !record.Tick.Equal(tick) {
			t.Errorf("record is %+v", record)
		}
		if next := f.begun("draw", 3)[2]; !next.run.Tick.Equal(tick.Add(time.Minute)) || next.run.Attempt != 1 {
			t.Errorf("then came %+v", next.run)
		}
		lockcoretest.MustFire(t, cuts...)
	})
}

// At most once: a tick whose holder was killed is not run again, and recorded as
// lost.
// Mutant: it is taken over.
func TestFault54_AtMostOnce(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		all := f.three("@every 1s", func(ctx context.Context, run singleton.Run) error {
			if f.book.all()[0].run.Tick.Equal(run.Tick) {
				<-ctx.Done()
			}
			return nil
		}, singleton.JobConfig{Guarantee: singleton.AtMostOnce})
		first := f.begun("draw", 1)[0]
		cut := all[first.replica].die()
		record := f.recorded("draw", 1)[0]
		if record.Outcome != lockcore.OutcomeLost || !record.Tick.Equal(first.run.Tick) || record.Attempt != 1 {
			t.Errorf("record is %+v", record)
		}
		f.begun("draw", 3)
		for tick, entries := range f.ticks("draw") {
			if len(entries) != 1 {
				t.Errorf("tick %v was run %d times", time.UnixMilli(tick), len(entries))
			}
		}
		lockcoretest.MustFire(t, cut)
	})
}

// The holder's process stands still for longer than the TTL, and goes on: it does
// not believe itself the holder for one step more, and what it did is not
// accepted beside the other's.
// Mutants: the attempt's context does not look at the clock (a timeout wrapped
// around it); a completion is accepted whoever has the tick.
func TestFault01_TheHolderOfATickIsFrozen(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		bubbleFleet(t, func(t *testing.T, f *fleet) {
			frozen, goOn, seen := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			all := f.three("@every 1m", func(ctx context.Context, run singleton.Run) error {
				if run.Attempt > 1 {
					return sleep(20*time.Second)(ctx, run)
				}
				close(frozen)
				<-goOn
				seen <- ctx.Err()
				return nil // it has not looked
			}, singleton.JobConfig{Timeout: timeout})
			<-frozen
			first := f.book.all()[0]
			holder := all[first.replica]
			cut := holder.net.Partition()
			second := f.begun("draw", 2)[1]
			holder.clock.Advance(time.Hour) // no timer of it has run
			holder.net.Heal()
			close(goOn)
			if err := <-seen; err == nil {
				t.Error("after the pause the attempt's context is not done")
			}
			f.pass(10 * time.Second)
			if n := len(f.runs("draw")); n != 0 {
				t.Errorf("the frozen one's completion was accepted while %s runs the tick", second.replica)
			}
			f.pass(15 * time.Second)
			record := f.ended("draw")[first.run.Tick.UnixMilli()]
			if record.Holder != second.replica || record.Attempt != 2 {
				t.Errorf("record is %+v, want that of %s", record, second.replica)
			}
			lockcoretest.MustFire(t, cut)
		})
	}
}

// The context of an attempt looks at the clock at its first use, also where the
// job has a timeout: here no timer has run since the clock jumped.
// Mutant: the timeout's context is derived from the lease's, and not the other
// way round.
func TestFault01_TheContextLooksAtTheClock(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		bubbleFleet(t, func(t *testing.T, f *fleet) {
			var r *replica
			seen := make(chan error, 2)
			r = f.replica("a", singleton.Config{})
			r.add("draw", "@every 1m", func(ctx context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					r.clock.Advance(time.Hour)
					seen <- ctx.Err()
				}
				return nil
			}, singleton.JobConfig{Timeout: timeout})
			r.run()
			if <-seen == nil {
				t.Errorf("timeout %v: the context is not done after the clock has jumped", timeout)
			}
		})
	}
}

// A run that has ended although its lease had not lasted is accepted as long as
// nobody has taken the tick over.
// Mutant: completion asks for a lease that is valid.
func TestLateCompletionIsAcceptedUnlessTakenOver(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 1m", func(context.Context, singleton.Run) error {
			cut := r.net.Partition()
			time.Sleep(10 * time.Second)
			r.net.Heal()
			lockcoretest.MustFire(t, cut)
			return nil
		}, singleton.JobConfig{})
		r.run()
		record := f.recorded("draw", 1)[0]
		if record.Outcome != lockcore.OutcomeSucceeded || record.Attempt != 1 {
			t.Errorf("record is %+v", record)
		}
		if n := len(f.book.all()); n != 1 {
			t.Errorf("the tick was run %d times", n)
		}
	})
}

// Work that ends within the drain is recorded; nobody runs it again.
// Mutant: the work's context ends with Run's.
func TestShutdownWaitsForTheWork(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		work := sleep(500 * time.Millisecond)
		all := f.three("@every 1s", work, singleton.JobConfig{})
		first := f.begun("draw", 1)[0]
		all[first.replica].stop()
		entries := f.begun("draw", 1)
		if entries[0].end.IsZero() {
			t.Error("Run has returned before its work")
		}
		if record := f.recorded("draw", 1)[0]; record.Outcome != lockcore.OutcomeSucceeded || record.Holder != first.replica || record.Attempt != 1 {
			t.Errorf("record is %+v", record)
		}
		f.begun("draw", 3)
		f.alone("draw")
		for _, e := range f.book.all()[1:] {
			if e.replica == first.replica || e.run.Tick.Equal(first.run.Tick) {
				t.Errorf("after the shutdown came %+v of %s", e.run, e.replica)
			}
		}
	})
}

// Work that goes on after the drain is told to stop; while it does not, its tick
// stays its own, and then another runs it at once.
// Mutants: the tick is given up before the work has returned; not given up, so
// that the next waits for the TTL; the work is never told.
func TestFault52_WorkThatIsSlowToStop(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		const drain, stubborn = 3 * time.Second, 30 * time.Second
		var causes []error
		work := func(ctx context.Context, run singleton.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			time.Sleep(stubborn)
			return ctx.Err()
		}
		all := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			all[name] = f.replica(name, singleton.Config{Drain: drain})
			all[name].add("draw", "@every 1h", work, singleton.JobConfig{})
			all[name].run()
		}
		first := f.begun("draw", 1)[0]
		stopped := time.Now()
		all[first.replica].stop()
		if took := time.Since(stopped); took < drain+stubborn || took > drain+stubborn+time.Second {
			t.Errorf("Run returned after %v, want %v", took, drain+stubborn)
		}
		second := f.begun("draw", 2)[1]
		if second.replica == first.replica || !second.run.Tick.Equal(first.run.Tick) || second.run.Attempt != 2 || second.run.Token <= first.run.Token {
			t.Errorf("after %+v came %+v of %s", first.run, second.run, second.replica)
		}
		if wait := second.begin.Sub(stopped.Add(drain + stubborn)); wait < 0 || wait > 100*time.Millisecond {
			t.Errorf("the next began %v after the work had ended", wait)
		}
		if len(causes) != 1 || !errors.Is(causes[0], singleton.ErrStopping) {
			t.Errorf("the work's context ended with %v", causes)
		}
		f.alone("draw")
	})
}

// A shutdown in the midst of the pause before a retry leaves the tick to another
// at once; and an attempt that was the last is recorded by the replica that stops.
// Mutants: the pause is sat out; the attempt after it counts although it never
// began; a last attempt is left, to be recorded as unknown.
func TestShutdownBetweenAttempts(t *testing.T) {
	for _, most := range []int{1, 2} {
		bubbleFleet(t, func(t *testing.T, f *fleet) {
			work := func(ctx context.Context, run singleton.Run) error {
				if run.Attempt > 1 {
					return nil
				}
				if most == 1 {
					<-ctx.Done()
				}
				return errors.New("boom")
			}
			all := map[string]*replica{}
			for _, name := range []string{"a", "b"} {
				all[name] = f.replica(name, singleton.Config{Drain: -1})
				all[name].add("draw", "@every 1h", work, singleton.JobConfig{MaxAttempts: most, Retry: 50 * time.Second})
				all[name].run()
			}
			first := f.begun("draw", 1)[0]
			f.pass(time.Second)
			stopped := time.Now()
			all[first.replica].stop()
			if time.Since(stopped) > time.Second {
				t.Errorf("Run returned after %v", time.Since(stopped))
			}
			record := f.recorded("draw", 1)[0]
			switch {
			case most == 1 && (record.Outcome != lockcore.OutcomeFailed || record.Holder != first.replica):
				t.Errorf("record is %+v, want the failure", record)
			case most == 2 && (record.Outcome != lockcore.OutcomeSucceeded || record.Holder == first.replica || record.Attempt != 2):
				t.Errorf("record is %+v, want the other's success", record)
			}
			if time.Since(stopped) > 2*time.Second {
				t.Errorf("the next took %v", time.Since(stopped))
			}
		})
	}
}

// A replica loses its lease in the pause between two attempts: it does not begin
// the next one, which is another's.
// Mutant: the lease is not looked at before an attempt.
func TestALeaseLostBetweenAttempts(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		var cut *lockcoretest.Rule
		all := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			r := f.replica(name, singleton.Config{})
			all[name] = r
			r.add("draw", "@every 1h", func(_ context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					cut = all[run.Holder].net.Partition()
					return errors.New("boom")
				}
				return nil
			}, singleton.JobConfig{Retry: 20 * time.Second})
		}
		for _, r := range all {
			r.run()
		}
		record := f.recorded("draw", 1)[0]
		first := f.book.all()[0]
		all[first.replica].net.Heal()
		f.pass(time.Minute)
		entries := f.book.all()
		if len(entries) != 2 || entries[1].replica == first.replica || record.Holder != entries[1].replica || record.Attempt != 2 {
			t.Errorf("attempts are %+v, the record is %+v", entries, record)
		}
		lockcoretest.MustFire(t, cut)
	})
}

// Work that panics or ends its goroutine takes neither the lease nor the other
// jobs with it.
// Mutants: the work is called on the follower's goroutine; a panic is not caught.
func TestFault53_PanicAndGoexit(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		bad := 0
		r.add("bad", "@every 1m", func(context.Context, singleton.Run) error { bad++; panic(fmt.Sprint("no. ", bad)) }, singleton.JobConfig{MaxAttempts: 2})
		r.add("good", "@every 1m", nil, singleton.JobConfig{})
		r.run()
		f.recorded("good", 3)
		f.recorded("bad", 3)
		if n := f.log.count("panicked"); n < 6 || bad < 6 {
			t.Errorf("%d panics, %d in the log", bad, n)
		}
		if n := f.log.count("lease ended before its release"); n != 0 {
			t.Errorf("%d leases were lost:\n%s", n, &f.log)
		}
	})
}

// A tick that may not overlap waits for the one before, and those that came due
// meanwhile are skipped but for the last.
// Mutant: forbid does not look at open runs.
func TestOverlap(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		f.three("@every 200ms", sleep(500*time.Millisecond), singleton.JobConfig{})
		f.recorded("draw", 6)
		f.alone("draw")
		f.proven("draw", every(t, 200*time.Millisecond))
		skipped := 0
		for _, r := range f.runs("draw") {
			if r.Count > 0 {
				skipped++
				if r.Error != "overlap" {
					t.Errorf("skipped for %q: %+v", r.Error, r)
				}
			}
		}
		if skipped == 0 {
			t.Error("no tick was skipped although each run takes three intervals")
		}
	})
}

// With OverlapAllow ticks are run at once, also on one replica.
// Mutant: they wait for the one before.
func TestOverlapAllowed(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 200ms", sleep(500*time.Millisecond), singleton.JobConfig{Overlap: singleton.OverlapAllow})
		r.run()
		f.recorded("draw", 4)
		together := 0
		entries := f.book.all()
		for i := 1; i < len(entries); i++ {
			if entries[i-1].end.IsZero() || entries[i].begin.Before(entries[i-1].end) {
				together++
			}
		}
		if together < 3 {
			t.Errorf("%d runs began while the one before was under way", together)
		}
		f.proven("draw", every(t, 200*time.Millisecond))
	})
}

// With OverlapAllow a dead holder's tick is taken over while later ones are run.
// Mutants: only the newest tick is remembered; the later ones wait for it.
func TestFault54_OverlappingTicks(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		victim := ""
		all := f.three("@every 1s", func(ctx context.Context, run singleton.Run) error {
			if victim == "" {
				victim = f.book.all()[0].replica
			}
			if f.book.all()[0].run.Tick.Equal(run.Tick) && run.Attempt == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, singleton.JobConfig{Overlap: singleton.OverlapAllow})
		first := f.begun("draw", 1)[0]
		f.recorded("draw", 5)
		died := time.Now()
		cut := all[first.replica].die()
		f.until("the tick is taken over", func() bool { return len(f.ticks("draw")[first.run.Tick.UnixMilli()]) == 2 })
		if took := time.Since(died); took > 2500*time.Millisecond {
			t.Errorf("the takeover took %v", took)
		}
		f.recorded("draw", 10)
		f.proven("draw", every(t, time.Second))
		lockcoretest.MustFire(t, cut)
	})
}
