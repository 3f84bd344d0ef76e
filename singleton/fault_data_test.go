package singleton_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
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
	state := testenv.Call(f.Raw.HGetAll(ctx, f.key(job, "job")).Result()).Must(f)
	runs := testenv.Call(f.Raw.LRange(ctx, f.key(job, "runs"), 0, -1).Result()).Must(f)
	fence := testenv.Call(f.Raw.Get(ctx, f.key(job, "fence")).Result()).Must(f)
	return func() {
		f.Helper()
		pipe := f.Raw.TxPipeline()
		pipe.FlushAll(ctx)
		pipe.HSet(ctx, f.key(job, "job"), state)
		for _, entry := range runs {
			pipe.RPush(ctx, f.key(job, "runs"), entry)
		}
		pipe.Set(ctx, f.key(job, "fence"), fence, 0)
		testenv.Call(pipe.Exec(ctx)).Must(f)
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
		f.start("abc", "@every 200ms", work, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
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
		f.proven("draw", parsed(t, "@every 200ms"))
		tokens(f, "draw")
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
		f.start("ab", "@every 200ms", func(context.Context, singleton.Run) error {
			f.mu.Lock()
			first := !once && len(f.book.all()) == 3
			once = once || first
			f.mu.Unlock()
			if first {
				close(reached)
				<-goOn
			}
			return nil
		}, singleton.JobConfig{CatchUp: singleton.CatchUpAll}, singleton.Config{TTL: f.ttl(time.Second)})
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
	})
}

// The server loses the data of a paused job, all of it or one key. A replica that knows of the pause pauses
// the job again, with its author, reason and time. Each replica logs and counts the loss. A resume
// after that counts, also for a replica that looks later.
// Mutants: the pause is not restored, or without its author; a stale replica pauses the job again.
func TestFault112_APauseIsLostWithTheData(t *testing.T) {
	for _, lose := range []func(f *fleet){
		func(f *fleet) { f.LoseData() },
		func(f *fleet) { testenv.Must(f, f.Raw.Del(f.Context(), f.key("draw", "job")).Err()) },
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			f.start("ab", "@every 1s", nil, singleton.JobConfig{})
			f.recorded("draw", 3)
			job := f.job("draw")
			testenv.Must(t, job.Pause(lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "no data"})))
			f.Pass(2 * time.Second)
			before := f.status("draw")
			lose(f)
			n := len(f.book.all())
			f.Pass(2 * time.Minute)
			testenv.Equal(t, "runs of the paused job", len(f.book.all()), n)
			st, acts := f.status("draw"), testenv.Call(job.Actions(t.Context(), 10)).Must(t)
			if !st.Paused || !st.PausedSince.Equal(before.PausedSince) {
				t.Errorf("status is %+v, before the loss %+v", st, before)
			}
			if len(acts) != 1 || acts[0] != (singleton.Action{At: before.PausedSince, Verb: "pause", By: "ann@host", Reason: "no data"}) {
				t.Errorf("acts are %+v", acts)
			}
			f.log.Lines(t, 2, "ledger lost or set back", `"paused"=true`)
			f.counts(2, "ledger_losses_total")
			f.log.Lines(t, 0, "job resumed")
			testenv.Must(t, job.Resume(t.Context()))
			f.Pass(2 * time.Minute)
			if now := len(f.book.all()); now < n+100 {
				t.Errorf("%d runs after the resume", now-n)
			}
			f.ranOnce("draw")
		})
	}
}

// A holder dies, an operator triggers a run, and each key of the ledger is lost at each step of that. The
// two other replicas send few requests, and ticks run afterwards.
// Mutant: after a refusal that changes nothing, the next claim follows at once.
func TestFault126_ClassD_AKeyIsLostAtEachStep(t *testing.T) {
	t.Parallel()
	for _, cfg := range []singleton.JobConfig{{}, {AllowOverlap: true}, {MaxAttempts: 1}} {
		for _, key := range []string{"job", "runs", "fence", "acts"} {
			for lost := range 6 {
				inBubble(t, func(t *testing.T, f *fleet) {
					var mu sync.Mutex
					calls := map[int64]int{} // in each second
					count := countingFault(func(cmd []string) {
						if strings.HasPrefix(cmd[0], "EVAL") {
							mu.Lock()
							defer mu.Unlock()
							calls[time.Now().Unix()]++
						}
					})
					f.start("abc", "@every 20s", func(ctx context.Context, run singleton.Run) error {
						if len(f.book.all()) == 1 {
							<-ctx.Done()
						}
						return sleep(time.Second)(ctx, run)
					}, cfg)
					for _, r := range f.all {
						r.net.Inject(t, count)
						r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Millisecond, Match: func([]string) bool { return true }})
					}
					var first entry
					for step, do := range []func(){
						func() { f.Pass(time.Second) },
						func() { first = f.begun("draw", 1)[0] },
						func() { f.all[first.replica].die() },
						func() { _, _ = f.job("draw").Trigger(t.Context()) }, // there may be no ledger
						func() { f.Pass(1900 * time.Millisecond) },
						func() { f.Pass(time.Second) },
					} {
						do()
						if step == lost {
							testenv.Must(t, f.Raw.Del(t.Context(), f.key("draw", key)).Err())
							f.Pass(100 * time.Millisecond)
						}
					}
					f.Pass(15 * time.Second)
					n := len(f.book.all())
					f.begun("draw", n+2)
					mu.Lock()
					defer mu.Unlock()
					most := 0
					for _, n := range calls {
						most = max(most, n)
					}
					if most > 40 {
						t.Errorf("%+v, %s lost after step %d: %d scripts in a second", cfg, key, lost, most)
					}
				})
			}
		}
	}
}
