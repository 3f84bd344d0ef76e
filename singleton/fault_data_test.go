package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Class D contains faults that are outside the guarantees of any lock on one server. The
// tests require that the job continues, that tokens grow, and that nothing is lost that a
// replica still knows.

// snapshot copies a job's keys. The function that it returns restores them.
func (f *fleet) snapshot(job string) (restore func()) {
	f.Helper()
	ctx := f.Context()
	state, err1 := f.Raw.HGetAll(ctx, f.key(job, "job")).Result()
	open, err2 := f.Raw.HGetAll(ctx, f.key(job, "open")).Result()
	runs, err3 := f.Raw.LRange(ctx, f.key(job, "runs"), 0, -1).Result()
	fence, err4 := f.Raw.Get(ctx, f.key(job, "fence")).Result()
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			f.Fatal(err)
		}
	}
	return func() {
		f.Helper()
		pipe := f.Raw.TxPipeline()
		pipe.FlushAll(ctx)
		pipe.HSet(ctx, f.key(job, "job"), state)
		if len(open) > 0 {
			pipe.HSet(ctx, f.key(job, "open"), open)
		}
		for _, entry := range runs {
			pipe.RPush(ctx, f.key(job, "runs"), entry)
		}
		pipe.Set(ctx, f.key(job, "fence"), fence, 0)
		if _, err := pipe.Exec(ctx); err != nil {
			f.Fatal(err)
		}
	}
}

// The server restarts empty. A tick that had ended is not run again, and a due tick is run.
// An open tick is run again with a greater token, and its first holder learns at its next
// renewal that it has lost it.
// Mutants: a new ledger begins at the present time; it begins at the newest tick although
// that was open; the counter of tokens begins at 1.
func TestFault15_ClassD_AnEmptyRestart(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		wait := make(chan struct{})
		var causes []error
		hung := false
		work := func(ctx context.Context, _ singleton.Run) error {
			f.mu.Lock()
			first := !hung && len(f.ticks("draw")) == 3
			hung = hung || first
			f.mu.Unlock()
			if !first {
				return nil
			}
			close(wait)
			<-ctx.Done()
			f.mu.Lock()
			causes = append(causes, context.Cause(ctx))
			f.mu.Unlock()
			return ctx.Err()
		}
		all := map[string]*replica{}
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{})
			r.add("draw", "@every 200ms", work, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			r.run()
			all[name] = r
		}
		<-wait
		entries := f.book.all()
		open := entries[len(entries)-1]
		f.LoseData()
		f.Until("more ticks are recorded", func() bool {
			runs, err := f.job("draw").Runs(t.Context(), 100)
			return err == nil && len(runs) >= 4
		})
		f.Until("the holder at the loss has been notified", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(causes) == 1
		})
		for tick, entries := range f.ticks("draw") {
			want := 1
			if tick == open.run.Tick.UnixMilli() {
				want = 2
			}
			if len(entries) != want {
				t.Errorf("tick %v was run %d times, want %d", time.UnixMilli(tick).UTC(), len(entries), want)
			}
		}
		again := f.ticks("draw")[open.run.Tick.UnixMilli()]
		if len(again) == 2 && again[1].run.Token <= again[0].run.Token {
			t.Errorf("after the loss token %d, before it %d", again[1].run.Token, again[0].run.Token)
		}
		f.proven("draw", every(t, 200*time.Millisecond))
		tokens(f, "draw")
		t.Log("1 empty restart")
	})
}

// The server returns with an old state (a snapshot, or a replica that lagged). Ticks that
// have ended since are not run again if all replicas know it, including one that was open in
// the old state. A replica that begins a run knows that the ticks before it have ended. A
// later tick may be run again: the replica that looks first may not know of its end.
// Mutants: the ledger is not brought forward; an old open run is taken over; a replica
// forgets what it has recorded itself; tokens come from the old counter.
func TestFault16_ClassD_AnOldSnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		reached, goOn := make(chan struct{}), make(chan struct{})
		var once bool
		for _, name := range []string{"a", "b"} {
			r := f.replica(name, singleton.Config{TTL: f.ttl(time.Second)})
			r.add("draw", "@every 200ms", func(context.Context, singleton.Run) error {
				f.mu.Lock()
				first := !once && len(f.book.all()) == 3
				once = once || first
				f.mu.Unlock()
				if first {
					close(reached)
					<-goOn
				}
				return nil
			}, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			r.run()
		}
		<-reached
		open := f.book.all()[2].run.Tick
		restore := f.snapshot("draw") // the third tick is open in it
		close(goOn)
		var known time.Time // all replicas know that the ticks before it have ended
		f.Until("both replicas have begun later ticks", func() bool {
			newest := map[string]time.Time{}
			for _, e := range f.book.all() {
				newest[e.replica] = e.run.Tick
			}
			known = newest["a"]
			if newest["b"].Before(known) {
				known = newest["b"]
			}
			return known.After(open.Add(400 * time.Millisecond))
		})
		restore()
		restored := time.Now()
		n := len(f.book.all())
		f.Until("more ticks are run", func() bool { return len(f.book.all()) >= n+4 })
		for tick, entries := range f.ticks("draw") {
			most := 1
			// A tick that was due then may have been claimed before, and begun later.
			if due := entries[0].run.Tick; !due.Before(known) && !due.After(restored) {
				most = 2
			}
			if len(entries) > most || entries[0].run.Attempt != 1 {
				t.Errorf("tick %v was run %d times, all replicas know of those before %v: %+v", time.UnixMilli(tick).UTC(), len(entries), known, entries)
			}
		}
		tokens(f, "draw")
		t.Log("1 old snapshot")
	})
}

// The same just after a replica has recorded a run, before its next look: it remembers its
// own record.
// Mutant: it remembers only what it has read.
func TestFault16_ClassD_WhatItHasRecordedItself(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		goOn := make(chan struct{})
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 1m", func(context.Context, singleton.Run) error {
			if len(f.book.all()) == 2 {
				<-goOn
			}
			return nil
		}, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		r.run()
		f.begun("draw", 2)
		restore := f.snapshot("draw")
		looks := r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: request("open")})
		close(goOn)
		f.recorded("draw", 2)
		f.Until("it looks", func() bool { return looks.Fired() > 0 })
		restore()
		looks.Lift()
		f.begun("draw", 5)
		f.ranOnce("draw")
	})
}

// At most once: a tick that was open when the server lost its data is not run again,
// because its holder may have had an effect.
// Mutant: it is claimed again, as is right for at least once.
func TestFault15_ClassD_AtMostOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.three("@every 1m", func(ctx context.Context, _ singleton.Run) error {
			if len(f.book.all()) == 2 {
				<-ctx.Done()
			}
			return ctx.Err()
		}, singleton.JobConfig{MaxAttempts: 1, CatchUp: singleton.CatchUpAll})
		f.begun("draw", 2)
		f.Pass(35 * time.Second) // all have looked
		if err := f.Bubble.Restart(true); err != nil {
			t.Fatal(err)
		}
		f.begun("draw", 5)
		f.ranOnce("draw")
		t.Log("1 empty restart")
	})
}

// The server is unreachable for a while, and loses nothing: a run under way continues or is
// run again, nothing is forgotten, and Run does not end.
// Mutant: an error of the server ends the follower.
func TestFault14_ARestartWithData(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.three("@every 1s", sleep(300*time.Millisecond), singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		for range 3 {
			f.recorded("draw", len(f.runs("draw"))+3)
			f.Bubble.Stop()
			f.Pass(5 * time.Second)
			if err := f.Bubble.Start(false); err != nil {
				t.Fatal(err)
			}
		}
		f.recorded("draw", 30)
		f.proven("draw", every(t, time.Second))
		f.alone("draw")
		for tick, r := range f.ended("draw") {
			if r.Outcome != singleton.OutcomeSucceeded {
				t.Errorf("tick %v: %+v", tick, r)
			}
		}
		if n := f.log.Count("ledger available again"); n < 3 {
			t.Errorf("%d replicas logged that the server is back", n)
		}
	})
}
