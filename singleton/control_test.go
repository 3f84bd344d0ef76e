package singleton_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// job returns a handle on a job from a process that does not run it.
func (f *fleet) job(name string) *singleton.Job {
	f.Helper()
	f.ledger(name)
	return testenv.Call(singleton.NewJob(f.reader, name)).Must(f)
}

func (f *fleet) status(name string) singleton.Status {
	f.Helper()
	return testenv.Call(f.job(name).Status(f.Context())).Must(f)
}

// Any process can read a job's next and last tick, and the holder, start and attempt of its
// run.
func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		testenv.Call(f.job("draw").Status(t.Context())).MustFail(t, singleton.ErrNoLedger)
		f.start("abc", "* * * * *", func(ctx context.Context, run singleton.Run) error {
			if run.Attempt == 1 {
				return errors.New("boom")
			}
			return sleep(10*time.Second)(ctx, run)
		}, singleton.JobConfig{})
		f.Pass(30 * time.Second)
		noon := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)
		st := f.status("draw")
		if st.Job != "draw" || !st.Next.Equal(noon) || st.Replicas != 3 || len(st.Definitions) != 1 || len(st.Definitions[0].Replicas) != 3 || st.Paused || len(st.Open) != 0 || !st.LastSuccess.IsZero() {
			t.Errorf("before the first tick: %+v", st)
		}
		f.Pass(35 * time.Second)
		st = f.status("draw")
		if len(st.Open) != 1 {
			t.Fatalf("while it is run: %+v", st)
		}
		open, e := st.Open[0], f.book.all()[1]
		if !open.Tick.Equal(noon) || open.Attempt != 2 || open.Holder != e.replica || !open.Running || open.Token != e.run.Token || open.Since.Sub(e.begin).Abs() > 10*time.Millisecond {
			t.Errorf("while it is run: %+v, begun at %v", open, e.begin)
		}
		f.Pass(15 * time.Second)
		st = f.status("draw")
		if len(st.Open) != 0 || !st.Last.Equal(noon) || !st.LastSuccess.Equal(noon) || !st.Next.Equal(noon.Add(time.Minute)) {
			t.Errorf("after the run: %+v", st)
		}
	})
}

// A paused job claims nothing. Replicas are notified of the pause, and it is stored. After
// a resume it runs the ticks that CatchUp selects, and records the others as skipped
// because of the pause.
// How long its keys live, the ledger tests.
// Mutant: the pause is not noticed until the next look.
func TestPauseAndResume(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		f.start("abc", "@every 500ms", nil, singleton.JobConfig{})
		f.recorded("draw", 2)
		job := f.job("draw")
		testenv.Must(t, errors.Join(job.Pause(t.Context()), job.Pause(t.Context())))
		since := f.status("draw")
		if !since.Paused || since.PausedSince.IsZero() {
			t.Errorf("status is %+v", since)
		}
		f.Until("no run is under way", func() bool { return len(f.status("draw").Open) == 0 })
		n := len(f.book.all())
		tick := testenv.Call(job.Trigger(t.Context())).Must(t) // something that is run while time passes
		f.Until("the trigger is run", func() bool { return len(f.ticks("draw")[tick.Tick.UnixMilli()]) == 1 })
		f.Until("three ticks have come due", func() bool { return f.status("draw").Now.Sub(since.Now) > 1600*time.Millisecond })
		testenv.Equal(t, "runs until the end of the pause", len(f.book.all()), n+1)
		testenv.Must(t, errors.Join(job.Resume(t.Context()), job.Resume(t.Context())))
		resumed := f.status("draw").Now
		f.begun("draw", n+2)
		if took := f.status("draw").Now.Sub(resumed); f.Bubble != nil && took > 100*time.Millisecond {
			t.Errorf("the missed tick was run %v after the job was resumed", took)
		}
		f.recorded("draw", 6)
		if !slices.ContainsFunc(f.runs("draw"), func(r singleton.HistoryEntry) bool {
			return r.Outcome == singleton.OutcomeSkipped && r.Error == "paused" && r.Count >= 1
		}) {
			t.Errorf("no tick is recorded as skipped for the pause: %+v", f.runs("draw"))
		}
	})
}

// A run that has begun continues while the job is paused: it is released after a failure, and taken over after the
// death of its holder. No new tick begins. Mutants: an open run waits for the end of the pause; a new tick does not.
func TestFault125_OpenRunsContinueWhileTheJobIsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("abc", "@every 1m", func(ctx context.Context, run singleton.Run) error {
			if run.Attempt == 4 {
				<-ctx.Done()
			}
			if run.Attempt < 5 {
				return errBroken
			}
			return nil
		}, singleton.JobConfig{})
		first := f.begun("draw", 1)[0]
		testenv.Must(t, f.job("draw").Pause(t.Context()))
		begun := f.begun("draw", 4)
		if begun[1].replica == first.replica || begun[2].replica == begun[1].replica {
			t.Errorf("the attempts are of %s, %s and %s", first.replica, begun[1].replica, begun[2].replica)
		}
		f.takenOver(4)
		f.Pass(5 * time.Minute)
		if runs := f.runs("draw"); len(runs) != 1 || runs[0].Outcome != singleton.OutcomeSucceeded || len(f.book.all()) != 5 {
			t.Errorf("the history is %+v after %d attempts", runs, len(f.book.all()))
		}
	})
}

// One replica runs a trigger at once, in addition to the schedule, in the order of
// triggering, under a name that no tick has. It is taken over and recorded like any run.
// Mutants: its name is the present instant; a repeated request triggers twice; it moves the
// newest tick.
func TestTrigger(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		var rule *lockcoretest.Rule
		f.start("abc", "0 0 1 1 *", func(ctx context.Context, run singleton.Run) error {
			if run.Attempt == 1 && rule == nil {
				rule = f.all[run.Holder].die()
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, singleton.JobConfig{})
		f.Until("the job is known", func() bool { _, err := f.job("draw").Status(t.Context()); return err == nil })
		before := f.status("draw")
		var ticks []int64
		for range 3 {
			tick := testenv.Call(f.job("draw").Trigger(t.Context())).Must(t)
			if !tick.Triggered || tick.Key() >= 0 {
				t.Errorf("the trigger is called %v, as a tick may be", tick)
			}
			ticks = append(ticks, tick.Key())
		}
		triggered := f.status("draw").Now
		f.recorded("draw", 3)
		entries := f.runs("draw")
		for i, e := range entries {
			if e.Key() != ticks[i] || e.Outcome != singleton.OutcomeSucceeded || e.Tick.Before(before.Now.Truncate(time.Millisecond)) || e.Tick.After(triggered.Add(3*time.Millisecond)) { // each has its own millisecond
				t.Errorf("entry %d is %+v", i, e)
			}
		}
		if entries[0].Attempt != 2 || len(f.ticks("draw")[-ticks[0]]) != 2 {
			t.Errorf("the trigger whose holder died: %+v", entries[0])
		}
		for _, e := range f.book.all() {
			if !e.run.Triggered || e.run.Key() != fmt.Sprintf("draw@-%d", e.run.Tick.UnixMilli()) {
				t.Errorf("the work was passed %+v", e.run)
			}
		}
		if after := f.status("draw"); !after.Last.Equal(before.Last) || !after.LastSuccess.IsZero() {
			t.Errorf("triggers have moved the schedule: %+v", after)
		}
		f.alone("draw")
		lockcoretest.MustFire(t, rule)
	})
}

// Programs read the JSON of Status and Entry: fields may be added, none may be removed.
func TestJSONIsStable(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for want, value := range map[string]any{
		`{"job":"draw","now":"2030-01-01T12:00:00Z","last":"2030-01-01T12:00:00Z","paused":false,"replicas":0,"definitions":[],"open":[]}`: singleton.Status{
			Job: "draw", Now: noon, Last: noon, Definitions: []singleton.Definition{}, Open: []singleton.OpenRun{},
		},
		`{"job":"draw","now":"2030-01-01T12:00:00Z","next":"2030-01-01T12:00:00Z","last":"2030-01-01T12:00:00Z","last_success":"2030-01-01T12:00:00Z","paused":true,"paused_since":"2030-01-01T12:00:00Z","schedule":"@noon","outcome":"failed","replicas":1,"definitions":[{"id":"d","acts":true,"replicas":[{"identity":"a","since":"2030-01-01T12:00:00Z"}]}],"open":[{"tick":"2030-01-01T12:00:00Z","triggered":true,"attempt":1,"holder":"a","token":7,"since":"2030-01-01T12:00:00Z","running":true,"canceled":{"at":"2030-01-01T12:00:00Z","action":"cancel","tick":"2030-01-01T12:00:00Z","by":"ann"}}]}`: singleton.Status{
			Job: "draw", Now: noon, Next: noon, Last: noon, LastSuccess: noon, Paused: true, PausedSince: noon, Replicas: 1, Schedule: "@noon", Outcome: singleton.OutcomeFailed,
			Definitions: []singleton.Definition{{ID: "d", Acts: true, Replicas: []singleton.Replica{{Identity: "a", Since: noon}}}},
			Open:        []singleton.OpenRun{{RunID: singleton.RunID{Tick: noon, Triggered: true}, Attempt: 1, Holder: "a", Token: 7, Since: noon, Running: true, Canceled: &singleton.Action{Verb: "cancel", At: noon, RunID: singleton.RunID{Tick: noon}, By: "ann"}}},
		},
		`{"tick":"2030-01-01T12:00:00Z","last":"2030-01-01T12:00:00Z","count":3,"outcome":"skipped","error":"missed"}`: singleton.HistoryEntry{
			RunID: singleton.RunID{Tick: noon}, Last: noon, Count: 3, Outcome: "skipped", Error: "missed",
		},
		`{"tick":"2030-01-01T12:00:00Z","triggered":true,"attempt":1,"holder":"a","token":7,"start":"2030-01-01T12:00:00Z","end":"2030-01-01T12:00:00Z","outcome":"failed","error":"boom"}`: singleton.HistoryEntry{
			RunID: singleton.RunID{Tick: noon, Triggered: true}, Attempt: 1, Holder: "a", Token: 7, Start: noon, End: noon, Outcome: "failed", Error: "boom",
		},
	} {
		got, err := json.Marshal(value)
		if err != nil || string(got) != want {
			t.Errorf("JSON is\n%s\nwant\n%s (%v)", got, want, err)
		}
	}
}

// A job is forgotten when no replica runs it, also one that is paused, and is then no job. A replica that starts
// later begins anew, with greater tokens.
func TestForget(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		all := f.start("ab", "@every 500ms", nil, singleton.JobConfig{})
		f.recorded("draw", 2)
		job := f.job("draw")
		err := job.Forget(f.Context())
		testenv.MustIs(t, err, singleton.ErrRunning)
		testenv.Equal(t, "the error", fmt.Sprint(err), `singleton: forget job "draw": singleton: already running on a, b`)
		for _, r := range all {
			r.stop()
		}
		testenv.Must(t, job.Pause(f.Context()))
		testenv.Must(t, job.Forget(f.Context()))
		testenv.MustIs(t, job.Forget(f.Context()), singleton.ErrNoLedger)
		testenv.Equal(t, "jobs", len(testenv.Call(singleton.Jobs(f.Context(), f.reader, nil)).Must(t)), 0)
		before, forgotten := f.book.all(), time.Now()
		f.start("c", "@every 500ms", nil, singleton.JobConfig{})
		f.recorded("draw", 2)
		next := f.book.all()[len(before)].run
		if next.Token <= before[len(before)-1].run.Token || next.Tick.Before(forgotten.Add(-100*time.Millisecond)) {
			t.Errorf("forgotten at %v after %+v, then %+v", forgotten, before[len(before)-1].run, next)
		}
	})
}

// All replicas died in the middle of a run: the next tick is in the past, also after an operator's request.
func TestNextTickOfADeadFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("a", "@every 1m", func(ctx context.Context, _ singleton.Run) error {
			f.all["a"].die()
			<-ctx.Done()
			return ctx.Err()
		}, singleton.JobConfig{})
		f.begun("draw", 1)
		if st := f.status("draw"); !st.Next.After(st.Now) {
			t.Errorf("during a run, the next tick is %v, now %v", st.Next, st.Now)
		}
		f.Pass(time.Hour)
		testenv.Call(f.job("draw").Trigger(t.Context())).Must(t)
		if st := f.status("draw"); !st.Next.Equal(st.Last.Add(time.Minute)) {
			t.Errorf("the next tick is %v, after %v", st.Next, st.Last)
		}
	})
}
