package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// jobLedger makes a ledger of a job. Its TTL is long enough for a busy machine; a test that waits
// for the end of a lease sets a shorter one.
func (e *env) jobLedger(c *lockcore.Client, cfg ledger.Config) *ledger.Ledger {
	e.Helper()
	if cfg.Lease.TTL == 0 {
		cfg.Lease.TTL = 10 * time.Second
	}
	l, err := ledger.New(c, "draw", cfg)
	testenv.Must(e, err)
	return l
}

// job returns the job of the ledgers, as operators see it.
func (e *env) job() *singleton.Job {
	e.Helper()
	if e.reader == nil {
		var err error
		e.reader, err = singleton.NewJob(e.Client("reader"), "draw")
		testenv.Must(e, err)
	}
	return e.reader
}

// runs returns the newest n entries of the history.
func (e *env) runs(n int) []singleton.HistoryEntry {
	e.Helper()
	runs, err := e.job().Runs(e.Context(), n)
	testenv.Must(e, err)
	return runs
}

// opened returns a ledger's state; a new ledger begins a minute ago.
func (e *env) opened(l *ledger.Ledger) ledger.State {
	e.Helper()
	now := e.Raw.Time(e.Context()).Val().UTC()
	st, err := l.Open(e.Context(), ledger.State{Last: now.Truncate(time.Second).Add(-time.Minute), Fresh: true})
	testenv.Must(e, err)
	return st
}

// claimed claims the first tick, a second after where the ledger began.
func (e *env) claimed(l *ledger.Ledger) (*ledger.Claim, ledger.State) {
	e.Helper()
	st := e.opened(l)
	run, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
	testenv.Must(e, err)
	return run, st
}

// notClaimed asserts why a claim was refused.
func (e *env) notClaimed(err error, why ledger.ClaimStatus) *ledger.ClaimError {
	e.Helper()
	var refused *ledger.ClaimError
	if !errors.As(err, &refused) || !errors.Is(err, ledger.ErrNotClaimed) || refused.Status != why {
		e.Fatalf("error is %v, want a claim refused for reason %d", err, why)
	}
	if refused.Job != "draw" || !strings.Contains(err.Error(), "draw") {
		e.Errorf("the error does not name the job: %v", err)
	}
	return refused
}

// The life of a tick: claimed by one replica, refused to others with the reason, renewed
// beyond its TTL, completed once.
func TestLedgerLifeOfATick(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := ledger.Config{Lease: lockcore.LeaseConfig{TTL: 3 * time.Second}}
		a, b := e.jobLedger(e.Client("a"), cfg), e.jobLedger(e.Client("b"), cfg)
		run, before := e.claimed(a)
		tick := run.Tick
		_, err := b.Claim(e.Context(), ledger.RunID{Tick: tick}, before, ledger.ClaimConfig{})
		busy := e.notClaimed(err, ledger.ClaimBusy)
		if busy.Holder != "a" || busy.Attempt != 1 || !busy.Open.Tick.Equal(tick) || busy.Left <= 0 || busy.Left > 3*time.Second {
			e.Errorf("refused with %+v", busy)
		}
		_, err = b.Claim(e.Context(), ledger.RunID{Tick: tick.Add(time.Second)}, e.opened(b), ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimBusy)
		_, err = b.Claim(e.Context(), ledger.RunID{Tick: tick.Add(time.Hour)}, before, ledger.ClaimConfig{})
		if early := e.notClaimed(err, ledger.ClaimEarly); early.Left < 58*time.Minute || early.Left > time.Hour {
			e.Errorf("refused with %+v", early)
		}
		e.Pass(4500 * time.Millisecond)
		if run.Context().Err() != nil {
			e.Fatalf("the run was not renewed: %v", context.Cause(run.Context()))
		}
		st := e.opened(b)
		if len(st.Open) != 1 || st.Open[0].Holder != "a" || st.Open[0].Attempt != 1 || st.Open[0].Token != run.Token() || st.Open[0].Left <= 0 || !st.Last.Equal(tick) {
			e.Errorf("state is %+v", st)
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if !errors.Is(context.Cause(run.Context()), lockcore.ErrReleased) {
			e.Errorf("after its completion the run's context ended with %v", context.Cause(run.Context()))
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, "")) // once more: the same
		testenv.MustIs(e, run.Abandon(e.Context(), true), lockcore.ErrNotHeld)
		_, err = b.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimDone)
		_, err = b.Claim(e.Context(), ledger.RunID{Tick: tick.Add(2 * time.Second)}, before, ledger.ClaimConfig{})
		if stale := e.notClaimed(err, ledger.ClaimStale); !stale.Last.Equal(tick) {
			e.Errorf("refused with %+v", stale)
		}
		if tombs := e.Raw.Keys(e.Context(), e.key("job/draw", "tomb:*")).Val(); len(tombs) != 0 {
			e.Errorf("refused claims and a completion left %v", tombs)
		}
		st = e.opened(b)
		if !st.LastSuccess.Equal(tick) || len(st.Open) != 0 || st.Freed.IsZero() {
			e.Errorf("state is %+v", st)
		}
		second, err := b.Claim(e.Context(), ledger.RunID{Tick: tick.Add(4 * time.Second)}, st, ledger.ClaimConfig{
			Skipped: &ledger.Skip{First: tick.Add(time.Second), Last: tick.Add(3 * time.Second), Count: 3, Reason: "missed"},
		})
		testenv.Must(e, err)
		if second.Token() <= run.Token() || !second.LastSuccess.Equal(tick) {
			e.Errorf("the second run: token %d after %d, last success %v", second.Token(), run.Token(), second.LastSuccess)
		}
		testenv.Must(e, second.Complete(e.Context(), ledger.OutcomeFailed, strings.Repeat("é", 1000)+"\xff"))
		runs := e.runs(10)
		if len(runs) != 3 || runs[0].Outcome != ledger.OutcomeFailed || runs[1].Count != 3 || runs[2].Outcome != ledger.OutcomeSucceeded {
			e.Fatalf("history is %+v", runs)
		}
		if len(runs[0].Error) > 510 || !strings.HasPrefix(runs[0].Error, "éé") {
			e.Errorf("an error of %d bytes was kept", len(runs[0].Error))
		}
	})
}

// Consecutive skips with one reason are one entry. A run between them, or another reason,
// separates them.
// Mutants: skips are joined whatever is between them; the count is not added.
func TestLedgerSkips(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		at := func(n int) time.Time { return st.Last.Add(time.Duration(n) * time.Second) }
		base := st.Last
		skip := func(from, to int, reason string) {
			e.Helper()
			known := ledger.State{Last: base.Add(time.Duration(from-1) * time.Second)}
			testenv.Must(e, l.Skip(e.Context(), known, ledger.Skip{First: at(from), Last: at(to), Count: to - from + 1, Reason: reason}))
			e.notClaimed(l.Skip(e.Context(), known, ledger.Skip{First: at(from), Last: at(to), Count: to - from + 1, Reason: reason}), ledger.ClaimDone)
		}
		skip(1, 3, "missed")
		skip(4, 4, "missed")
		skip(5, 5, "overlap")
		skip(6, 6, "overlap") // the earlier entries stay
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: at(7)}, ledger.State{Last: at(6)}, ledger.ClaimConfig{})
		testenv.Must(e, err)
		skip(8, 9, "overlap") // while it is run
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		e.notClaimed(l.Skip(e.Context(), ledger.State{Last: at(3)}, ledger.Skip{First: at(4), Last: at(12), Count: 9, Reason: "missed"}), ledger.ClaimStale)
		e.notClaimed(l.Skip(e.Context(), ledger.State{Last: at(9)}, ledger.Skip{First: at(4), Last: at(7200), Count: 9, Reason: "missed"}), ledger.ClaimEarly)
		runs := e.runs(10)
		want := []struct {
			from, to, count int
			reason          string
		}{{7, 0, 0, ""}, {8, 9, 2, "overlap"}, {5, 6, 2, "overlap"}, {1, 4, 4, "missed"}}
		if len(runs) != len(want) {
			e.Fatalf("history is %+v", runs)
		}
		for i, w := range want {
			r := runs[i]
			if !r.Tick.Equal(at(w.from)) || r.Count != w.count || r.Error != w.reason || w.to > 0 && !r.Last.Equal(at(w.to)) {
				e.Errorf("entry %d is %+v, want %+v", i, r, w)
			}
		}
	})
}

// KeepRuns limits the history. Cut is the newest tick that was dropped, for a damaged entry the newest
// of all.
// Mutants: Cut is an older tick, the first of several skipped ones, or a triggered run.
func TestLedgerKeepsSoManyRuns(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{KeepRuns: 3})
		st := e.opened(l)
		begun, runs := st.Last, e.key("job/draw", "runs")
		cut := func(want time.Time) {
			e.Helper()
			if !st.Cut.Equal(want) {
				e.Errorf("the history is cut at %v, want %v", st.Cut, want)
			}
		}
		for n := range 6 {
			run, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			st = e.opened(l)
			runs := e.runs(100)
			if want := min(n+1, 3); len(runs) != want {
				e.Errorf("after %d runs %d are kept", n+1, len(runs))
			}
			if n < 3 {
				cut(time.Time{})
			} else {
				cut(begun.Add(time.Duration(n-2) * time.Second))
			}
		}
		older := func(entry string) {
			e.Helper()
			testenv.Must(e, e.Raw.RPush(e.Context(), runs, entry).Err())
			id, err := l.Trigger(e.Context())
			testenv.Must(e, err)
			run, err := l.Claim(e.Context(), id, e.opened(l), ledger.ClaimConfig{})
			testenv.Must(e, err)
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			st = e.opened(l)
		}
		testenv.Must(e, e.Raw.Del(e.Context(), runs).Err())
		testenv.Must(e, e.Raw.RPush(e.Context(), runs, `{"tick":"-5"}`, `{"tick":"-4"}`).Err())
		older(`{"tick":"5"}`)
		cut(begun.Add(3 * time.Second))
		older(fmt.Sprintf(`{"tick":"5","last":"%d"}`, begun.Add(4*time.Second).UnixMilli()))
		cut(begun.Add(4 * time.Second))
		older(`"damaged"`)
		cut(st.Last)
	})
}

// A reply that leaves no validity never starts work. The third one releases the tick.
// Mutants: the lease counts from the reply; a late grant is accepted.
func TestFault03_AClaimWithoutValidity(t *testing.T) {
	inBubble(t, func(e *env) {
		c, net := e.Linked("a")
		l := e.jobLedger(c, ledger.Config{Lease: lockcore.LeaseConfig{TTL: 300 * time.Millisecond, ValidFor: 90 * time.Millisecond, RenewInterval: 30 * time.Millisecond}})
		run, _ := e.claimed(l)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		slow := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 95 * time.Millisecond, Match: e.script("job_claim")})
		_, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, e.opened(l), ledger.ClaimConfig{})
		testenv.MustIs(e, err, lockcore.ErrLeaseExpired)
		slow.Lift()
		e.Pass(50 * time.Millisecond)
		// Two late replies: the third request is in time.
		net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 95 * time.Millisecond, Match: e.script("job_claim"), Count: 2})
		run, err = l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, e.opened(l), ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		// Of all scripts: the first renewal is sent at once, and must not be answered before Remaining is read.
		late := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 60 * time.Millisecond, Match: lockcoretest.Command("EVALSHA")})
		again, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, e.opened(l), ledger.ClaimConfig{})
		testenv.Must(e, err)
		if again.Attempt != 1 {
			e.Errorf("the claim without validity was counted: attempt %d", again.Attempt)
		}
		if left := again.Remaining(); left <= 0 || left > 30*time.Millisecond {
			e.Errorf("after a reply of 60 ms %v are left of 90", left)
		}
		late.Lift()
	})
}

// Out of memory: scripts that end runs still work. Scripts that begin them return an error
// and leave nothing half done. TestJobScriptsOnSpoiltKeys has the keys of another type.
func TestFault31_NoMemoryForTheLedger(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "maxmemory-policy noeviction")
	c := e.Client("a")
	l := e.jobLedger(c, ledger.Config{})
	run, _ := e.claimed(l)
	testenv.Must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "1").Err())
	st := ledger.State{Last: run.Tick}
	if err := run.Complete(e.Context(), ledger.OutcomeSucceeded, ""); err != nil {
		t.Errorf("completion while out of memory: %v", err)
	}
	_, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
	if err == nil || errors.Is(err, ledger.ErrNotClaimed) {
		t.Errorf("claim while out of memory: %v", err)
	}
	testenv.Must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "0").Err())
	if n := e.Raw.HLen(e.Context(), e.key("job/draw", "open")).Val(); n != 0 {
		t.Errorf("%d runs are open", n)
	}
	run, err = l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
	testenv.Must(e, err)
	testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
}

func TestLedgerRefusals(t *testing.T) {
	inBubble(t, func(e *env) {
		c := e.Client("a")
		for _, c2 := range []struct {
			name  string
			cfg   ledger.Config
			field string
		}{
			{"", ledger.Config{}, "name"},
			{"a b", ledger.Config{}, "name"},
			{"a{b", ledger.Config{}, "name"},
			{strings.Repeat("x", 201), ledger.Config{}, "name"},
			{"draw", ledger.Config{Lease: testenv.TTL(time.Millisecond)}, "LeaseConfig.TTL"},
		} {
			_, err := ledger.New(c, c2.name, c2.cfg)
			var refused *noonlock.ConfigError
			if !errors.As(err, &refused) || refused.Field != c2.field {
				e.Errorf("Ledger(%q, %+v): %v, want %s refused", c2.name, c2.cfg, err, c2.field)
			}
		}
		l := e.jobLedger(c, ledger.Config{})
		st := e.opened(l)
		good := st.Last.Add(time.Second)
		claim := func(tick time.Time) error {
			_, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
			return err
		}
		for what, err := range map[string]error{
			"tick":                  claim(time.Time{}),
			"tick of 1970":          claim(time.UnixMilli(0)),
			"tick of a microsecond": claim(good.Add(time.Microsecond)),
			"tick far ahead":        claim(time.UnixMilli(1 << 48)),
			"runs":                  func() error { _, err := e.job().Runs(e.Context(), 0); return err }(),
			"Skip":                  l.Skip(e.Context(), st, ledger.Skip{}),
		} {
			testenv.MustIs(e, err, noonlock.ErrConfig)
			if err == nil {
				e.Errorf("%s was not refused", what)
			}
		}
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: good}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if _, err := e.jobLedger(e.Client("b"), ledger.Config{}).Status(e.Context()); err != nil {
			e.Error(err)
		}
		testenv.Must(e, c.Close(e.Context()))
		testenv.MustIs(e, claim(good), lockcore.ErrClosed)
		_, err = l.Open(e.Context(), st)
		testenv.MustIs(e, err, lockcore.ErrClosed)
	})
}
