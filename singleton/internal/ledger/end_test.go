package ledger_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// dead claims the first tick for a replica that dies at once, and waits until its hold has
// expired.
func (e *env) dead(cfg ledger.Config) (*ledger.Claim, ledger.State) {
	e.Helper()
	cfg.Lease.TTL, cfg.Lease.NoRenewal = 2*time.Second, true // requests time out after a third of it
	run, st := e.claimed(e.jobLedger(e.Client("dead"), cfg))
	e.Pass(2100 * time.Millisecond)
	return run, st
}

// A holder died, so its effect may have happened, and the next one fails. The outcome of
// the tick is unknown, and the ledger says so. It never says failed: not when the last
// holder learns that only from a repeated request, and not after it has counted attempts or
// released the tick to a third one. If one holder succeeds, so does the tick.
// Mutants: only the second holder's outcome counts; the doubt is forgotten at the next
// takeover, or when the claim is repeated after a lost reply; a tick that was released
// after its work had returned is in doubt, too.
func TestAFailureAfterACrashIsUnknown(t *testing.T) {
	onBoth(t, func(e *env) {
		patient := ledger.Config{Lease: testenv.TTL(6 * time.Second)} // of a busy machine
		for _, c := range []struct {
			name                    string
			dies, givenUp, retries  bool
			outcome, want, wantText string
		}{
			{"none dies", false, true, true, ledger.OutcomeFailed, ledger.OutcomeFailed, "boom"},
			{"one dies", true, false, false, ledger.OutcomeFailed, ledger.OutcomeUnknown, "boom"},
			{"one dies, the next counts attempts", true, false, true, ledger.OutcomeFailed, ledger.OutcomeUnknown, "boom"},
			{"one dies, the next releases", true, true, false, ledger.OutcomeFailed, ledger.OutcomeUnknown, "boom"},
			{"one dies, the last succeeds", true, true, true, ledger.OutcomeSucceeded, ledger.OutcomeSucceeded, ""},
		} {
			testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
			var run *ledger.Claim
			var st ledger.State
			if c.dies {
				run, st = e.dead(ledger.Config{})
			} else {
				run, st = e.claimed(e.jobLedger(e.Client("first"), patient))
				testenv.Must(e, run.Abandon(e.Context(), true))
			}
			again := func() {
				e.Helper()
				next, net := e.Linked("next")
				l := e.jobLedger(next, patient)
				_, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(-time.Hour)}, st, ledger.ClaimConfig{}) // the script is known
				testenv.MustIs(e, err, ledger.ErrNotClaimed)
				kind := lockcoretest.SwallowReply
				if e.Bubble == nil {
					kind = lockcoretest.ResetAfter // as lost, but noticed at once
				}
				lost := net.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("job_claim"), Count: 1})
				run, err = l.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				lockcoretest.MustFire(e, lost)
				if run.Unsure != c.dies {
					e.Errorf("%s: Unsure is %v at attempt %d", c.name, run.Unsure, run.Attempt)
				}
			}
			again()
			if c.retries {
				err := run.Retry(e.Context())
				testenv.Must(e, err)
			}
			if c.givenUp {
				testenv.Must(e, run.Abandon(e.Context(), true))
				again()
			}
			for range 2 {
				testenv.Must(e, run.Complete(e.Context(), c.outcome, c.wantText))
			}
			runs := e.runs(10)
			if len(runs) != 1 || string(runs[0].Outcome) != c.want || runs[0].Error != c.wantText {
				e.Errorf("%s: the history is %+v", c.name, runs)
			}
		}
	})
}

// A run is left without an end. If its work has failed and reported that, or had not begun,
// there is no doubt. If it may have had its effect, or was left during the work without a
// report, there is doubt, whatever happens later: if the others fail, the ledger says
// unknown, never failed.
// Mutants: a run that was released had no effect; a failed one may have had one; the next
// attempt of the same holder forgets that the first one is in doubt.
func TestWhoLeavesARunInDoubt(t *testing.T) {
	onBoth(t, func(e *env) {
		patient := ledger.Config{Lease: testenv.TTL(10 * time.Second)} // of a busy machine
		for _, c := range []struct {
			name  string
			leave func(c *lockcore.Client, run *ledger.Claim) error
			doubt bool
		}{
			{"it had not begun", func(_ *lockcore.Client, run *ledger.Claim) error {
				return run.Abandon(e.Context(), false)
			}, false},
			{"it has failed", func(_ *lockcore.Client, run *ledger.Claim) error {
				return run.Abandon(e.Context(), true)
			}, false},
			{"it has failed twice", func(_ *lockcore.Client, run *ledger.Claim) error {
				err := run.Retry(e.Context())
				return errors.Join(err, run.Abandon(e.Context(), true))
			}, false},
			{"it may have had its effect", func(_ *lockcore.Client, run *ledger.Claim) error {
				run.Unsure = true
				return run.Abandon(e.Context(), true)
			}, true},
			{"its first attempt may have had its effect", func(_ *lockcore.Client, run *ledger.Claim) error {
				run.Unsure = true
				err := run.Retry(e.Context())
				return errors.Join(err, run.Abandon(e.Context(), true))
			}, true},
			{"it says nothing", func(_ *lockcore.Client, run *ledger.Claim) error {
				return run.Unlock(e.Context())
			}, true},
			{"its client is closed", func(c *lockcore.Client, _ *ledger.Claim) error {
				return c.Close(e.Context())
			}, true},
		} {
			testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
			first := e.Client("first")
			run, st := e.claimed(e.jobLedger(first, patient))
			testenv.Must(e, c.leave(first, run))
			l := e.jobLedger(e.Client("next"), patient)
			for range 2 { // the second time after a failure without doubt
				next, err := l.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				if next.Unsure != c.doubt {
					e.Errorf("%s: Unsure is %v at attempt %d", c.name, next.Unsure, next.Attempt)
				}
				testenv.Must(e, next.Abandon(e.Context(), true))
			}
			last, err := l.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			testenv.Must(e, last.Complete(e.Context(), ledger.OutcomeFailed, "boom"))
			want := ledger.OutcomeFailed
			if c.doubt {
				want = ledger.OutcomeUnknown
			}
			if runs := e.runs(10); len(runs) != 1 || string(runs[0].Outcome) != want {
				e.Errorf("%s: the history is %+v, want %s", c.name, runs, want)
			}
		}
	})
}

// A repeated completion is recognized from the history, and leaves no key. One that was not
// accepted is not recognized, whatever else the history contains.
// Mutants: each leaves a tombstone; the end of the successor counts as its own; so does an
// end that another replica recorded for a dead holder.
func TestCompletionsAreKnownFromTheHistory(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{MaxAttempts: 2})
		run, _ := e.claimed(l)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		before := e.runs(10)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if tombs := e.Raw.Keys(e.Context(), e.key("job/draw", "tomb:*")).Val(); len(tombs) != 0 {
			e.Errorf("a run that has ended left %v", tombs)
		}
		testenv.MustIs(e, run.Complete(e.Context(), ledger.OutcomeFailed, "another word"), ledger.ErrSuperseded)
		if after := e.runs(10); len(after) != 1 || !reflect.DeepEqual(after[0], before[0]) {
			e.Errorf("the history is %+v, was %+v", after, before)
		}

		// Taken over, and completed by the other replica.
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		first, st := e.dead(ledger.Config{})
		second, err := l.Claim(e.Context(), first.RunID, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, second.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		testenv.MustIs(e, first.Complete(e.Context(), ledger.OutcomeSucceeded, ""), ledger.ErrSuperseded)
		testenv.Must(e, second.Complete(e.Context(), ledger.OutcomeSucceeded, ""))

		// Recorded by another replica for its dead holder, with that holder's token.
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		first, st = e.dead(ledger.Config{MaxAttempts: 1})
		_, err = e.jobLedger(e.Client("b"), ledger.Config{MaxAttempts: 1}).Claim(e.Context(), first.RunID, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimRecorded)
		testenv.MustIs(e, first.Complete(e.Context(), ledger.OutcomeSucceeded, ""), ledger.ErrSuperseded)
		testenv.MustIs(e, first.Complete(e.Context(), ledger.OutcomeFailed, "late"), ledger.ErrSuperseded)
	})
}

// An unreadable entry of the history does not affect a repeated completion.
// Mutant: every entry is read.
func TestHistoryThatIsSpoilt(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		run, _ := e.claimed(l)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), "nonsense").Err())
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		for i, spoilt := range []string{"nonsense", "5", ""} {
			testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), spoilt).Err())
			st := e.opened(l)
			at := st.Last.Add(time.Millisecond)
			e.Pass(2 * time.Millisecond)
			if err := l.Skip(e.Context(), st, ledger.Skip{First: at, Last: at, Count: 1, Reason: "missed"}); err != nil {
				e.Errorf("skipped, and the newest entry is %q: %v", spoilt, err)
			}
			if n := e.Raw.LLen(e.Context(), e.key("job/draw", "runs")).Val(); n != int64(4+2*i) {
				e.Errorf("%d entries with %q", n, spoilt)
			}
		}
	})
}

// Two ticks were under way: each is recognized by its own end, whatever the other's entry
// contains.
// Mutant: the token is searched in the whole entry.
func TestCompletionsOfTwoTicks(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
		one, st := e.claimed(l)
		st.Last = one.Tick
		two, err := l.Claim(e.Context(), ledger.RunID{Tick: one.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		reason := fmt.Sprint("a higher token was seen: ", two.Token())
		testenv.Must(e, one.Complete(e.Context(), ledger.OutcomeFailed, reason))
		testenv.Must(e, e.Raw.HDel(e.Context(), e.key("job/draw", "open"), e.Raw.HKeys(e.Context(), e.key("job/draw", "open")).Val()...).Err())
		testenv.MustIs(e, two.Complete(e.Context(), ledger.OutcomeFailed, ""), ledger.ErrSuperseded)
		testenv.Must(e, one.Complete(e.Context(), ledger.OutcomeFailed, reason))
	})
}

// A watcher is notified of every change: a claim, a counted attempt, the end, a pause, a
// trigger, the end of a canceled run. Replicas are not notified of the first two, because they would look in vain.
// Mutants: begins are not announced; they are announced to all.
func TestWatch(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		watcher := e.jobLedger(e.Client("w"), ledger.Config{})
		var changes, begins atomic.Int64
		e.Cleanup(watcher.Watch(func(*ledger.RunID, bool) { changes.Add(1) }))
		e.Cleanup(watcher.WatchBegins(func() { begins.Add(1) }))
		e.Until("both are subscribed", func() bool { return changes.Load() > 0 && begins.Load() > 0 })
		changes.Store(0)
		begins.Store(0)
		told := func(what string, wantChanges, wantBegins int64) {
			e.Helper()
			e.Until(what+" is announced", func() bool { return changes.Load() >= wantChanges && begins.Load() >= wantBegins })
			e.Pass(20 * time.Millisecond)
			if c, b := changes.Swap(0), begins.Swap(0); c != wantChanges || b != wantBegins {
				e.Errorf("%s: %d changes and %d begins are announced, want %d and %d", what, c, b, wantChanges, wantBegins)
			}
		}
		run, _ := e.claimed(l)
		told("a claim in a new ledger", 1, 1)
		err := run.Retry(e.Context())
		testenv.Must(e, err)
		told("an attempt", 0, 1)
		testenv.Must(e, run.Abandon(e.Context(), true))
		told("giving up", 1, 0)
		again, err := l.Claim(e.Context(), run.RunID, ledger.State{Last: run.Tick}, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, again.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		told("a run", 1, 1)
		next := run.Tick.Add(time.Second)
		testenv.Must(e, l.Skip(e.Context(), ledger.State{Last: run.Tick}, ledger.Skip{First: next, Last: next, Count: 1, Reason: "missed"}))
		told("a skip", 1, 0)
		testenv.Must(e, l.Pause(e.Context()))
		told("a pause", 1, 0)
		testenv.Must(e, l.Resume(e.Context()))
		told("its end", 1, 0)
		tick, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		told("a trigger", 1, 0)
		e.canceled(tick, tick)
		told("the cancellation of a run that has not begun", 1, 0)
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		dead, st := e.dead(ledger.Config{MaxAttempts: 1})
		told("a claim in a new ledger", 1, 1)
		_, err = e.jobLedger(e.Client("b"), ledger.Config{MaxAttempts: 1}).Claim(e.Context(), ledger.RunID{Tick: dead.Tick}, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimRecorded)
		told("the end of a dead run", 1, 0)
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		run, st = e.claimed(l)
		told("a claim in a new ledger", 1, 1)
		testenv.Must(e, run.Abandon(e.Context(), true))
		told("giving up", 1, 0)
		e.canceled(run.RunID, run.RunID)
		told("the cancellation of an abandoned run", 1, 0)
		run, err = l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, e.opened(l), ledger.ClaimConfig{})
		testenv.Must(e, err)
		told("a claim", 0, 1)
		e.canceled(run.RunID, run.RunID)
		told("a cancellation", 1, 0)
		testenv.Must(e, run.Abandon(e.Context(), true))
		told("giving up what was canceled", 1, 0)
		_, err = l.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimRecorded)
		told("its end", 1, 0)
		testenv.Must(e, l.Pause(e.Context()))
		told("a pause", 1, 0)
		knows := e.opened(l)
		testenv.Must(e, e.Raw.HDel(e.Context(), e.key("job/draw", "job"), "paused", "control").Err())
		_, err = l.Open(e.Context(), knows)
		testenv.Must(e, err)
		told("a pause that was restored", 1, 0)
	})
}
