package singleton_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// job returns a handle on a job from a process that does not run it.
func (f *fleet) job(name string) *singleton.Job {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader == nil {
		f.reader = f.ClientWith(f.Direct(), lockcore.Config{Identity: "reader"})
	}
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

// A paused job claims nothing. Replicas are notified of the pause and of its end. Then they run the ticks that CatchUp
// selects, and record the others as skipped because of the pause. How long its keys live, the ledger tests.
// Mutant: the pause is not noticed until the next look.
func TestPauseAndResume(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("abc", "@every 500ms", nil, singleton.JobConfig{})
		f.recorded("draw", 2)
		job := f.job("draw")
		testenv.Must(t, job.Pause(t.Context()))
		n := len(f.book.all())
		f.Pass(1600 * time.Millisecond)
		if st := f.status("draw"); !st.Paused || st.PausedSince.IsZero() || len(f.book.all()) != n {
			t.Errorf("%d runs until the end of the pause, the status is %+v", len(f.book.all())-n, st)
		}
		testenv.Must(t, job.Resume(t.Context()))
		resumed := time.Now()
		f.within("the missed tick was run", f.begun("draw", n+1)[n].begin.Sub(resumed), 100*time.Millisecond)
		if !slices.ContainsFunc(f.runs("draw"), func(r singleton.HistoryEntry) bool {
			return r.Outcome == singleton.OutcomeSkipped && r.Error == "paused" && r.Count >= 1
		}) {
			t.Errorf("no tick is recorded as skipped for the pause: %+v", f.runs("draw"))
		}
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
	} {
		got, err := json.Marshal(value)
		if err != nil || string(got) != want {
			t.Errorf("JSON is\n%s\nwant\n%s (%v)", got, want, err)
		}
	}
	// Entries that were written once can be read for ever.
	inBubble(t, func(t *testing.T, f *fleet) {
		for stored, want := range map[string]string{
			`{"tick":"1893499200000","attempt":"2","holder":"host-7","token":"1893499200000001","start":"1893499200001","end":"1893499201000","outcome":"succeeded","error":""}`:                                                                                        `{"tick":"2030-01-01T12:00:00Z","attempt":2,"holder":"host-7","token":1893499200000001,"start":"2030-01-01T12:00:00.001Z","end":"2030-01-01T12:00:01Z","outcome":"succeeded","attempts":[{"number":2,"holder":"host-7","token":1893499200000001,"start":"2030-01-01T12:00:00.001Z","end":"2030-01-01T12:00:01Z"}]}`,
			`{"tick":"1893499200000","last":"1893499260000","count":"2","outcome":"skipped","error":"missed"}`:                                                                                                                                                          `{"tick":"2030-01-01T12:00:00Z","last":"2030-01-01T12:01:00Z","count":2,"outcome":"skipped","error":"missed"}`,
			`{"tick":"-1893499200000","attempt":"1","holder":"h","token":"7","start":"1893499200000","end":"1893499200000","outcome":"unknown","error":"x","a later field":[1]}`:                                                                                        `{"tick":"2030-01-01T12:00:00Z","triggered":true,"attempt":1,"holder":"h","token":7,"start":"2030-01-01T12:00:00Z","end":"2030-01-01T12:00:00Z","outcome":"unknown","error":"x","attempts":[{"number":1,"holder":"h","token":7,"start":"2030-01-01T12:00:00Z","end":"2030-01-01T12:00:00Z","error":"x"}]}`,
			`{"tick":"1893499200000","attempt":"2","holder":"h","token":"8","start":"1893499201000","end":"1893499202000","outcome":"failed","error":"y","tries":[{"attempt":"1","holder":"g","token":"7","start":"1893499200000","end":"1893499201000","error":"x"}]}`: `{"tick":"2030-01-01T12:00:00Z","attempt":2,"holder":"h","token":8,"start":"2030-01-01T12:00:01Z","end":"2030-01-01T12:00:02Z","outcome":"failed","error":"y","attempts":[{"number":1,"holder":"g","token":7,"start":"2030-01-01T12:00:00Z","end":"2030-01-01T12:00:01Z","error":"x"},{"number":2,"holder":"h","token":8,"start":"2030-01-01T12:00:01Z","end":"2030-01-01T12:00:02Z","error":"y"}]}`,
		} {
			testenv.Must(t, f.Raw.LPush(t.Context(), f.key("draw", "runs"), stored).Err())
			testenv.Equal(t, stored, string(testenv.Call(json.Marshal(f.runs("draw")[len(f.runs("draw"))-1])).Must(t)), want)
		}
		testenv.Must(t, f.Raw.LPush(t.Context(), f.key("draw", "runs"), "nonsense").Err())
		testenv.Call(f.job("draw").Runs(t.Context(), 1)).MustFail(t)
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
