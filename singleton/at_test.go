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

// A run at an instant begins then, with its id and payload, which is shown nowhere. A past instant means now. A rerun has
// them too. How often it runs, the ledger tests.
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
		testenv.Must(t, second1(job.TriggerAt(ann, "x", at, secret)))
		testenv.MustIs(t, second1(job.TriggerAt(t.Context(), "x", at.Add(1), secret)), singleton.ErrConflict)
		if o := f.status("draw").Open[0]; o.Request.ID != "x" || o.NotBefore.Sub(at).Abs() > time.Millisecond || o.Attempt != 0 || o.Request.By != "ann" || o.Request.Reason != "order 7" {
			t.Errorf("the run that waits is %+v", o)
		}
		testenv.Call(job.Result(t.Context(), "x")).MustFail(t, singleton.ErrNotEnded)
		if x := f.recorded("draw", 1)[0]; x.ID != "x" || x.Start.Before(at) || f.Bubble != nil && x.Start.After(at.Add(time.Second)) || x.Outcome != singleton.OutcomeSucceeded {
			t.Errorf("the run is %+v, want it at %v", x, at)
		}
		testenv.Must(t, second1(job.TriggerAt(t.Context(), "fails", at.Add(-time.Hour), "again")))
		f.recorded("draw", 2)
		mended.Store(true)
		testenv.Must(t, job.Rerun(t.Context(), testenv.Call(job.Result(t.Context(), "fails")).Must(t).RunID))
		f.recorded("draw", 3)
		testenv.Equal(t, "runs", fmt.Sprintf("%q", f.ids()), fmt.Sprintf("%q", map[string][]string{"x": {secret}, "fails": {"again", "again"}}))
		testenv.Call(job.Result(t.Context(), "unknown")).MustFail(t, singleton.ErrNoRun)
		acts := testenv.Call(job.Actions(t.Context(), 10)).Must(t)
		all := testenv.Call(json.Marshal([]any{f.runs("draw"), acts, f.status("draw")})).Must(t)
		if strings.Contains(string(all)+f.log.String(), "a secret") {
			t.Errorf("a payload is shown: %s", all)
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
		lost := net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Count: 1, Match: f.request("trigger")})
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

// Many at one instant all run, on replicas of a new definition after a pause. The replicas seldom claim the same run. How
// many may wait and how long they are kept, the ledger tests.
// Mutant: all replicas claim each run.
func TestManyInstants(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const many = 99
		f.start("a", never, nil, singleton.JobConfig{KeepRuns: 2})
		f.Pass(10 * time.Second)
		job := f.job("draw")
		for i := range many {
			testenv.Must(t, second1(job.TriggerAt(t.Context(), fmt.Sprint("noon-", i), f.now().Add(time.Hour), strconv.Itoa(i))))
		}
		testenv.Must(t, job.Pause(t.Context()))
		f.Pass(2 * time.Hour)
		testenv.Equal(t, "runs while the job was paused", len(f.book.all()), 0)
		f.all["a"].stop()
		f.start("cdef", never, nil, singleton.JobConfig{KeepRuns: 2, Revision: 2})
		f.Pass(time.Minute)
		var claims []func() int
		for _, name := range []string{"c", "d", "e", "f"} {
			claims = append(claims, f.all[name].claims())
		}
		testenv.Must(t, job.Resume(t.Context()))
		f.begun("draw", many)
		f.Pass(time.Minute)
		n := 0
		for _, count := range claims {
			n += count()
		}
		if len(f.ids()) != many || len(f.book.all()) != many || n > many+4*4 {
			t.Errorf("%d ids, %d runs and %d claims by 4 replicas of %d", len(f.ids()), len(f.book.all()), n, many)
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
