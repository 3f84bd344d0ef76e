package singleton_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// Class D: the clock of the server is set. Class S: the wall clocks of clients are wrong.

// The server's clock is set forward by a minute: ticks run early by it, each once. Then it
// is set back by an hour: nothing is run until the clock has caught up, and nothing twice.
// Mutants: the estimate of the server's clock is kept for its minute; a replica that got
// "too early" waits for an hour without a look.
func TestFault35_36_ClassD_TheServersClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Minute, -time.Hour} {
		inBubble(t, func(t *testing.T, f *fleet) {
			all := f.start("abc", "@every 10s", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			f.recorded("draw", 5)
			f.Pass(3 * time.Second)
			f.Bubble.StepClock(step)
			before := len(f.book.all())
			f.Pass(40 * time.Second)
			switch now := len(f.book.all()); {
			case step > 0 && now < before+9:
				t.Errorf("a minute forward: %d runs in 40 s, want those of 100 s", now-before)
			case step < 0 && now != before:
				t.Errorf("an hour back: %d runs", now-before)
			}
			for name, r := range all {
				testenv.Equal(t, name+" is ready", r.runner.Ready() == nil, step > 0)
			}
			f.Bubble.StepClock(-step)
			f.Pass(2 * time.Minute)
			if now := len(f.book.all()); now < before+11 {
				t.Errorf("after the clock was set right: %d runs", now-before)
			}
			for name, r := range all {
				testenv.Must(t, r.runner.Ready())
				f.log.Lines(t, 1, name+": ", "ticks run again")
			}
			f.ranOnce("draw")
			f.proven("draw", parsed(t, "@every 10s"))
			tokens(f, "draw")
			t.Logf("the server's clock was set by %v and back", step)
		})
	}
}

// The server's clock was ahead once, and is right again: the ledger has accounted for all ticks
// until then, so none runs. Every replica says so: it is not ready, logs one error, and its next
// tick becomes overdue. A clock that is set back by less than two ticks is no reason.
// Mutants: the job stays ready; the log repeats the error; the next tick moves on; the stored
// next tick is one that does not run.
func TestFault35_ClassD_TheServersClockWasAhead(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"a month": 30 * 24 * time.Hour, "hours": 2 * time.Hour, "one tick": time.Minute} {
		inBubble(t, func(t *testing.T, f *fleet) {
			hindered := ahead > time.Hour
			f.apart = true
			all := f.start("ab", "@every 1m", nil, singleton.JobConfig{})
			f.recorded("draw", 2)
			f.Bubble.StepClock(ahead)
			f.Pass(90 * time.Second)
			f.Bubble.StepClock(-ahead)
			before := len(f.book.all())
			f.Pass(40 * time.Second)
			right := time.Now()
			logged := f.log.Count("no tick runs until")
			f.Pass(10 * time.Minute)
			for name, r := range all {
				testenv.Equal(t, name+" is ready", r.runner.Ready() == nil, !hindered)
				next, _ := testenv.Series(t, r.reg, "noonlock_job_next_tick_timestamp_seconds", "name", "draw")
				overdue := time.Since(time.Unix(int64(next), 0))
				if hindered != (overdue > 9*time.Minute && overdue <= time.Since(right)+2*time.Minute) {
					t.Errorf("the next tick of %s is overdue by %v", name, overdue)
				}
			}
			if !hindered {
				if now := len(f.book.all()); now < before+9 || logged > 0 {
					t.Errorf("%s: %d runs in ten minutes, %d errors", name, now-before, logged)
				}
				return
			}
			testenv.Equal(t, name+": runs", len(f.book.all()), before)
			if after := f.log.Count("no tick runs until"); logged != len(all) || after != logged {
				t.Errorf("%s: logged %d times, then %d", name, logged, after-logged)
			}
			if st := f.status("draw"); st.Next.Before(st.Last) || st.Next.Sub(st.Last) > time.Minute {
				t.Errorf("%s: the next tick is %v, the last one was %v", name, st.Next, st.Last)
			}
		})
	}
}

// The server's clock was behind, and is set right. A replica notices that in the next answer for any of its jobs: to a
// claim, or to a look, every 5 s while the ledger is ahead. All its jobs then run what is due.
// Mutants: a claim brings no time; a ledger that is ahead is read every 30 s, or not as soon as a refused claim shows the
// step; the other job waits for its own answer.
func TestFault35_ClassD_TheServersClockWasBehind(t *testing.T) {
	for _, row := range []struct {
		name          string
		begin, behind time.Duration // by which the clock is set before the start, and for how long
		right         time.Duration // by which it is set at the end
	}{
		{"it was set back", 0, 5 * time.Minute, 2 * time.Hour},
		{"it was set back for a moment", 0, 10 * time.Second, 2 * time.Hour},
		{"it was behind from the beginning", -time.Hour, 12 * time.Second, time.Hour},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			f.Bubble.StepClock(row.begin)
			a := f.replica("a", singleton.Config{})
			a.add("draw", "@every 2s", nil, singleton.JobConfig{})
			a.add("backup", "@every 1h", nil, singleton.JobConfig{})
			a.run()
			f.recorded("draw", 3)
			if row.begin == 0 {
				f.Bubble.StepClock(-time.Hour)
			}
			before := len(f.book.all())
			f.Pass(row.behind)
			if n := len(f.book.all()) - before; (n > 1) != (row.begin < 0) {
				t.Errorf("%s: %d runs before the clock was set right", row.name, n)
			}
			f.Bubble.StepClock(row.right)
			before = len(f.book.all())
			f.Pass(8 * time.Second)
			newest := map[string]time.Duration{}
			for _, e := range f.book.all()[before:] {
				newest[e.run.Job] = f.now().Sub(e.run.Tick)
			}
			if len(newest) != 2 || newest["draw"] > 2*time.Second {
				t.Errorf("%s: 8 s after the clock was set right, the newest runs are from %v ago", row.name, newest)
			}
		})
	}
}

// All wall clocks of a fleet are wrong, each in its own way, and one is set while it runs.
// No tick is begun early or twice, none is missed, the tokens grow, and each replica reports its own offset.
// Mutants: the due time is taken from the wall clock; the claim does not check the
// server's; the offset is measured once.
func TestFault37_AFleetOfWrongClocks(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		offsets := []time.Duration{-5 * time.Minute, -90 * time.Second, 0, 3 * time.Second, 5 * time.Minute}
		var set atomic.Int64 // how far the last one's clock has been set
		f.apart = true
		for i, off := range offsets {
			name := fmt.Sprintf("%+d", int(off.Seconds()))
			wall := func() time.Time { return time.Now().Add(off) }
			if i == len(offsets)-1 {
				wall = func() time.Time { return time.Now().Add(off + time.Duration(set.Load())) }
			}
			r := f.replica(name, singleton.Config{})
			singleton.SetWallClock(r.runner, wall)
			r.add("draw", "@every 500ms", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			r.run()
		}
		f.recorded("draw", 6)
		set.Store(int64(-10 * time.Minute))
		f.recorded("draw", 12)
		for _, e := range f.book.all() {
			// The server's clock is this machine's, rounded down to a microsecond.
			if late := e.begin.Sub(e.run.Tick); late < 0 || f.Bubble != nil && late > 10*time.Millisecond {
				t.Errorf("%s began tick %v %v after it", e.replica, e.run.Tick, late)
			}
		}
		f.ranOnce("draw")
		f.alone("draw")
		tokens(f, "draw")
		f.proven("draw", parsed(t, "@every 500ms"))
		for i, off := range offsets {
			name := fmt.Sprintf("%+d", int(off.Seconds()))
			if i == len(offsets)-1 {
				off += time.Duration(set.Load())
			}
			f.Until(name+" tells its offset", func() bool {
				shown, _ := testenv.Series(t, f.all[name].reg, "noonlock_job_clock_offset_seconds")
				return (time.Duration(shown*1e9) - off).Abs() < 500*time.Millisecond
			})
		}
	})
}
