package singleton_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

const never = "@never"

// ids returns which runs of an id have begun, with their payloads.
func (f *fleet) ids() map[string][]string {
	all := map[string][]string{}
	for _, e := range f.book.all() {
		all[e.run.ID] = append(all[e.run.ID], e.run.Payload)
	}
	return all
}

// now returns the server's time.
func (f *fleet) now() time.Time {
	f.Helper()
	return testenv.Call(f.Raw.Time(f.Context()).Result()).Must(f)
}

// A run at an instant begins then, once, with its id and payload, whoever repeats the request, which is
// shown without its payload. A past instant means now. A rerun has them too. A canceled one does not run.
func TestTriggerAt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		var mended atomic.Bool
		f.start("abc", never, func(_ context.Context, run singleton.Run) error {
			if run.ID == "fails" && !mended.Load() {
				return errBroken
			}
			return nil
		}, singleton.JobConfig{MaxAttempts: 1})
		job, ann := f.job("draw"), lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann", Reason: "order 7"})
		f.Until("the job is there", func() bool { _, err := job.Status(t.Context()); return err == nil })
		at := f.now().Add(2 * time.Second).Truncate(time.Millisecond)
		secret := "a secret\x00\xff\n{}"
		for range 2 {
			testenv.Must(t, second1(job.TriggerAt(ann, "x", at, secret)))
		}
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "z", at.Add(time.Second), "")))
		testenv.MustIs(t, second1(job.TriggerAt(t.Context(), "x", at, "b")), singleton.ErrConflict)
		testenv.MustIs(t, second1(job.TriggerAt(t.Context(), "x", at.Add(1), secret)), singleton.ErrConflict)
		st := f.status("draw")
		if len(st.Open) != 2 {
			t.Fatalf("the status is %+v", st)
		}
		if o := st.Open[0]; o.Request.ID != "x" || o.NotBefore.Sub(at).Abs() > time.Millisecond || o.Attempt != 0 || o.Request.By != "ann" || o.Request.Reason != "order 7" {
			t.Errorf("the run that waits is %+v", o)
		}
		testenv.Call(job.Result(t.Context(), "x")).MustFail(t, singleton.ErrNotEnded)
		testenv.Must(t, job.CancelAt(t.Context(), "z"))
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "z", at.Add(time.Second), "")))
		testenv.MustIs(t, job.CancelAt(t.Context(), "z"), singleton.ErrNotOpen)
		testenv.MustIs(t, job.CancelAt(t.Context(), "unknown"), singleton.ErrNotOpen)
		f.Until("it has run", func() bool { return len(f.runs("draw")) == 2 })
		x := f.runs("draw")[1]
		if x.ID != "x" || x.Start.Before(at) || x.Start.After(at.Add(time.Second)) || x.Outcome != singleton.OutcomeSucceeded {
			t.Errorf("the run is %+v, want it at %v", x, at)
		}
		if z := f.runs("draw")[0]; z.ID != "z" || z.Outcome != singleton.OutcomeSkipped || z.Error != "canceled" {
			t.Errorf("the canceled one is %+v", z)
		}
		testenv.Must(t, second1(job.TriggerAt(ann, "x", at, secret)))
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "fails", at.Add(-time.Hour), "again")))
		f.Until("it has failed", func() bool { return len(f.runs("draw")) == 3 })
		mended.Store(true)
		testenv.Must(t, job.Rerun(t.Context(), testenv.Call(job.Result(t.Context(), "fails")).Must(t).RunID))
		f.Until("it has run again", func() bool { return len(f.runs("draw")) == 4 })
		testenv.Equal(t, "runs", fmt.Sprintf("%q", f.ids()), fmt.Sprintf("%q", map[string][]string{"x": {secret}, "fails": {"again", "again"}}))
		testenv.Call(job.Result(t.Context(), "unknown")).MustFail(t, singleton.ErrNoRun)
		acts := testenv.Call(job.Actions(t.Context(), 10)).Must(t)
		all := testenv.Call(json.Marshal([]any{f.runs("draw"), acts, f.status("draw")})).Must(t)
		for _, text := range []string{string(all), f.log.String(), fmt.Sprint(f.Raw.HGetAll(t.Context(), f.key("draw", "payloads")), f.Raw.LRange(t.Context(), f.key("draw", "runs"), 0, -1))} {
			if strings.Contains(text, "a secret") {
				t.Errorf("a payload is shown, or kept after success: %s", text)
			}
		}
		for _, bad := range []error{
			second1(job.TriggerAt(t.Context(), "", at, "")), second1(job.TriggerAt(t.Context(), "a b", at, "")), second1(job.TriggerAt(t.Context(), "a", time.Time{}, "")),
			second1(job.TriggerAt(t.Context(), "a", at, strings.Repeat("x", 4097))), job.CancelAt(t.Context(), ""),
		} {
			testenv.MustIs(t, bad, noonlock.ErrConfig)
		}
	})
}

// The reply to a request is lost, the replica dies at the instant, the clock is set back before and after it,
// and messages are lost: each id runs once, at its instant on the server's clock or later.
func TestFault132_OnceAtAnInstant(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("abc", never, func(ctx context.Context, run singleton.Run) error {
			if run.ID == "death" && run.Attempt == 1 {
				f.all[run.Holder].die()
				<-ctx.Done()
			}
			return nil
		}, singleton.JobConfig{})
		f.Pass(10 * time.Second)
		client, net := f.Linked("operator")
		job := testenv.Call(singleton.NewJob(client, "draw")).Must(t)
		ran := func(when, want string) {
			t.Helper()
			testenv.Equal(t, when, fmt.Sprint(f.ids()), "map["+want+"]")
		}
		lost := net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Count: 1, Match: request("trigger")})
		begin := f.now()
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "reply", begin.Add(time.Minute), "")))
		lockcoretest.MustFire(f, lost)

		f.Bubble.StepClock(-time.Hour)
		f.Pass(2 * time.Minute)
		ran("before the clock has reached the instant", "")
		f.Bubble.StepClock(time.Hour)
		f.Pass(time.Minute)
		ran("when it has", "reply:[]")
		f.Bubble.StepClock(-time.Hour)
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "reply", begin.Add(time.Minute), "")))
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "back", begin.Add(-2*time.Hour), "")))
		f.Pass(time.Minute)
		ran("after the clock was set back", "back:[] reply:[]")

		testenv.Must(t, second1(job.TriggerAt(t.Context(), "death", f.now().Add(time.Minute), "p")))
		f.Pass(2 * time.Minute)
		ran("after a death", "back:[] death:[p p] reply:[]")
		for _, r := range f.all { // they hear of nothing
			if !r.dead.Load() {
				r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
			}
		}
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "unheard", f.now(), "")))
		f.Pass(31 * time.Second)
		ran("after a lost message", "back:[] death:[p p] reply:[] unheard:[]")
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "late", f.now().Add(time.Minute), "")))
		f.Pass(61 * time.Second)
		ran("after another one", "back:[] death:[p p] late:[] reply:[] unheard:[]")

		testenv.Must(t, job.Pause(t.Context()))
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "without", f.now(), "it")))
		testenv.Must(t, f.Raw.Del(t.Context(), f.key("draw", "payloads")).Err())
		testenv.Must(t, job.Resume(t.Context()))
		f.Pass(time.Minute)
		ran("after its payload was lost", "back:[] death:[p p] late:[] reply:[] unheard:[]")
		if runs := f.runs("draw"); runs[len(runs)-1].ID != "without" || runs[len(runs)-1].Error != "the server lost its payload" {
			t.Errorf("the history is %+v", runs)
		}
	})
}

// What waits survives a pause, KeepRuns and a new definition, and a year without replicas. Many at one instant
// all run, and an operator's trigger is not refused meanwhile. The number that may wait is bounded. The replicas seldom
// claim the same run.
// Mutant: all replicas claim each run.
func TestManyInstants(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const many = 99
		f.start("ab", never, nil, singleton.JobConfig{KeepRuns: 2})
		f.Pass(10 * time.Second)
		job := f.job("draw")
		noon := f.now().Add(time.Hour)
		for i := range many {
			testenv.Must(t, second1(job.TriggerAt(t.Context(), fmt.Sprint("noon-", i), noon, strconv.Itoa(i))))
		}
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "year", f.now().Add(400*24*time.Hour), "")))
		testenv.MustIs(t, second1(job.TriggerAt(t.Context(), "one-more", noon, "")), singleton.ErrTriggers)
		for _, part := range []string{"job", "payloads", "runs"} {
			if left := f.PTTL(f.key("draw", part)); f.Exists(f.key("draw", part)) && left < 429*24*time.Hour {
				t.Errorf("%s is kept for %s", part, left)
			}
		}
		testenv.Must(t, job.Pause(t.Context()))
		f.Pass(2 * time.Hour)
		testenv.Equal(t, "runs while the job was paused", len(f.book.all()), 0)
		for _, name := range []string{"a", "b"} {
			f.all[name].stop()
		}
		f.start("cdef", never, nil, singleton.JobConfig{KeepRuns: 2, Revision: 2})
		f.Pass(time.Minute)
		var claims []func() int
		for _, name := range []string{"c", "d", "e", "f"} {
			claims = append(claims, f.all[name].claims())
		}
		testenv.Must(t, job.Resume(t.Context()))
		testenv.Call(job.Trigger(t.Context())).Must(t)
		f.Until("all have run", func() bool { return len(f.book.all()) >= many+1 })
		f.Pass(time.Minute)
		runs, n := map[singleton.RunID]bool{}, 0
		for _, e := range f.book.all() {
			runs[e.run.RunID] = true
		}
		for _, count := range claims {
			n += count()
		}
		if n > many+1+4*4 {
			t.Errorf("%d claims of %d runs by 4 replicas", n, many+1)
		}
		if ids := f.ids(); len(ids) != many+1 || len(runs) != many+1 || len(f.book.all()) != many+1 {
			t.Errorf("%d ids and %d runs of %d", len(ids), len(runs), len(f.book.all()))
		}
	})
}

// A run that was requested for an instant and lost is requested again: its key and its marker are the same.
func TestKeyOfAnID(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("a", never, nil, singleton.JobConfig{})
		f.Pass(time.Second)
		request := func(id string) singleton.Run {
			t.Helper()
			n := len(f.book.all())
			testenv.Must(t, second1(f.job("draw").TriggerAt(t.Context(), id, f.now(), "")))
			f.Pass(time.Second)
			return f.begun("draw", n+1)[n].run
		}
		first := request("x")
		testenv.Must(t, f.Raw.FlushAll(t.Context()).Err())
		f.Pass(time.Minute)
		if again := request("x"); again.Key() != first.Key() || again.RunID == first.RunID || again.Marker().ID != "x" {
			t.Errorf("the key of the lost run is %s, then %s", first.Key(), again.Key())
		}
		if other := request("y"); other.Key() == first.Key() {
			t.Errorf("two ids have the key %s", other.Key())
		}
	})
}
