package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) jobLedger(c *lockcore.Client, cfg lockcore.LedgerConfig) *lockcore.Ledger {
	e.Helper()
	if cfg.Lease.TTL == 0 {
		cfg.Lease.TTL = time.Second
	}
	l, err := c.Ledger("draw", cfg)
	must(e, err)
	return l
}

// opened is a ledger's state; a new one begins a minute ago.
func (e *env) opened(l *lockcore.Ledger) lockcore.LedgerState {
	e.Helper()
	now, _, err := l.Now(e.Context())
	must(e, err)
	st, err := l.Open(e.Context(), lockcore.LedgerState{Last: now.Truncate(time.Second).Add(-time.Minute), Fresh: true})
	must(e, err)
	return st
}

// claimed claims the first tick, a second after where the ledger began.
func (e *env) claimed(l *lockcore.Ledger) (*lockcore.Run, lockcore.LedgerState) {
	e.Helper()
	st := e.opened(l)
	run, err := l.Claim(e.Context(), st.Last.Add(time.Second), st, lockcore.ClaimConfig{})
	must(e, err)
	return run, st
}

// notClaimed asserts why a claim was refused.
func (e *env) notClaimed(err error, why lockcore.ClaimStatus) *lockcore.ClaimError {
	e.Helper()
	var refused *lockcore.ClaimError
	if !errors.As(err, &refused) || !errors.Is(err, lockcore.ErrNotClaimed) || refused.Status != why {
		e.Fatalf("error is %v, want a claim refused for reason %d", err, why)
	}
	if refused.Job != "draw" || !strings.Contains(err.Error(), "draw") {
		e.Errorf("the error does not name the job: %v", err)
	}
	return refused
}

// The life of a tick: claimed by one, refused to others with the reason, renewed
// beyond its TTL, completed once.
func TestLedgerLifeOfATick(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.jobLedger(e.client("a"), lockcore.LedgerConfig{}), e.jobLedger(e.client("b"), lockcore.LedgerConfig{})
		run, before := e.claimed(a)
		tick := run.Tick
		_, err := b.Claim(e.Context(), tick, before, lockcore.ClaimConfig{})
		busy := e.notClaimed(err, lockcore.ClaimBusy)
		if busy.Holder != "a" || busy.Attempt != 1 || !busy.OpenTick.Equal(tick) || busy.Left <= 0 || busy.Left > time.Second {
			e.Errorf("refused with %+v", busy)
		}
		_, err = b.Claim(e.Context(), tick.Add(time.Second), e.opened(b), lockcore.ClaimConfig{})
		e.notClaimed(err, lockcore.ClaimBusy)
		_, err = b.Claim(e.Context(), tick.Add(time.Hour), before, lockcore.ClaimConfig{})
		if early := e.notClaimed(err, lockcore.ClaimEarly); early.Left < 58*time.Minute || early.Left > time.Hour {
			e.Errorf("refused with %+v", early)
		}
		e.pass(2500 * time.Millisecond)
		if run.Context().Err() != nil {
			e.Fatalf("the run was not renewed: %v", context.Cause(run.Context()))
		}
		st := e.opened(b)
		if len(st.Open) != 1 || st.Open[0].Holder != "a" || st.Open[0].Attempt != 1 || st.Open[0].Token != run.Token() || st.Open[0].Left <= 0 || !st.Last.Equal(tick) {
			e.Errorf("state is %+v", st)
		}
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		if !errors.Is(context.Cause(run.Context()), lockcore.ErrReleased) {
			e.Errorf("after its completion the run's context ended with %v", context.Cause(run.Context()))
		}
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, "")) // once more: the same
		mustIs(e, run.Abandon(e.Context(), true), lockcore.ErrNotHeld)
		_, err = b.Claim(e.Context(), tick, st, lockcore.ClaimConfig{})
		e.notClaimed(err, lockcore.ClaimDone)
		_, err = b.Claim(e.Context(), tick.Add(2*time.Second), before, lockcore.ClaimConfig{})
		if stale := e.notClaimed(err, lockcore.ClaimStale); !stale.Last.Equal(tick) {
			e.Errorf("refused with %+v", stale)
		}
		st = e.opened(b)
		if !st.LastSuccess.Equal(tick) || len(st.Open) != 0 || st.Freed.IsZero() {
			e.Errorf("state is %+v", st)
		}
		second, err := b.Claim(e.Context(), tick.Add(4*time.Second), st, lockcore.ClaimConfig{
			Skipped: &lockcore.Skip{First: tick.Add(time.Second), Last: tick.Add(3 * time.Second), Count: 3, Reason: "missed"},
		})
		must(e, err)
		if second.Token() <= run.Token() || !second.LastSuccess.Equal(tick) {
			e.Errorf("the second run: token %d after %d, last success %v", second.Token(), run.Token(), second.LastSuccess)
		}
		must(e, second.Complete(e.Context(), lockcore.OutcomeFailed, strings.Repeat("é", 1000)+"\xff"))
		runs, err := a.Runs(e.Context(), 10)
		must(e, err)
		if len(runs) != 3 || runs[0].Outcome != lockcore.OutcomeFailed || runs[1].Count != 3 || runs[2].Outcome != lockcore.OutcomeSucceeded {
			e.Fatalf("history is %+v", runs)
		}
		if len(runs[0].Error) > 510 || !strings.HasPrefix(runs[0].Error, "éé") {
			e.Errorf("an error of %d bytes was kept", len(runs[0].Error))
		}
	})
}

// Skips in a row, for one reason, are one entry; a run between, or another reason,
// parts them.
// Mutants: skips are joined whatever lies between them; the count is not added.
func TestLedgerSkips(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st := e.opened(l)
		at := func(n int) time.Time { return st.Last.Add(time.Duration(n) * time.Second) }
		base := st.Last
		skip := func(from, to int, reason string) {
			e.Helper()
			known := lockcore.LedgerState{Last: base.Add(time.Duration(from-1) * time.Second)}
			must(e, l.Skip(e.Context(), known, lockcore.Skip{First: at(from), Last: at(to), Count: to - from + 1, Reason: reason}))
			e.notClaimed(l.Skip(e.Context(), known, lockcore.Skip{First: at(from), Last: at(to), Count: to - from + 1, Reason: reason}), lockcore.ClaimDone)
		}
		skip(1, 3, "missed")
		skip(4, 4, "missed")
		skip(5, 6, "overlap")
		run, err := l.Claim(e.Context(), at(7), lockcore.LedgerState{Last: at(6)}, lockcore.ClaimConfig{})
		must(e, err)
		skip(8, 9, "overlap") // while it is run
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		e.notClaimed(l.Skip(e.Context(), lockcore.LedgerState{Last: at(3)}, lockcore.Skip{First: at(4), Last: at(12), Count: 9, Reason: "missed"}), lockcore.ClaimStale)
		e.notClaimed(l.Skip(e.Context(), lockcore.LedgerState{Last: at(9)}, lockcore.Skip{First: at(4), Last: at(7200), Count: 9, Reason: "missed"}), lockcore.ClaimEarly)
		runs, err := l.Runs(e.Context(), 10)
		must(e, err)
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

// KeepRuns bounds the history.
func TestLedgerKeepsSoManyRuns(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{KeepRuns: 3})
		st := e.opened(l)
		for n := range 6 {
			run, err := l.Claim(e.Context(), st.Last.Add(time.Second), st, lockcore.ClaimConfig{})
			must(e, err)
			must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
			st = e.opened(l)
			runs, err := l.Runs(e.Context(), 100)
			must(e, err)
			if want := min(n+1, 3); len(runs) != want {
				e.Errorf("after %d runs %d are kept", n+1, len(runs))
			}
		}
	})
}

// A reply that leaves no validity never starts work, and the tick is given back.
// Mutants: the lease counts from the reply; a late grant is believed.
func TestFault03_AClaimWithoutValidity(t *testing.T) {
	inBubble(t, func(e *env) {
		c, net := e.linked("a")
		l := e.jobLedger(c, lockcore.LedgerConfig{Lease: lockcore.LeaseConfig{TTL: 300 * time.Millisecond, ValidFor: 90 * time.Millisecond, RenewInterval: 30 * time.Millisecond}})
		run, _ := e.claimed(l)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		slow := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 95 * time.Millisecond, Match: e.script("job_claim")})
		_, err := l.Claim(e.Context(), run.Tick.Add(time.Second), e.opened(l), lockcore.ClaimConfig{})
		mustIs(e, err, lockcore.ErrLeaseExpired)
		slow.Lift()
		e.pass(50 * time.Millisecond)
		late := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 60 * time.Millisecond, Match: e.script("job_claim")})
		again, err := l.Claim(e.Context(), run.Tick.Add(time.Second), e.opened(l), lockcore.ClaimConfig{})
		must(e, err)
		if again.Attempt != 1 {
			e.Errorf("the claim without validity was counted: attempt %d", again.Attempt)
		}
		if left := again.Remaining(); left <= 0 || left > 30*time.Millisecond {
			e.Errorf("after a reply of 60 ms %v are left of 90", left)
		}
		late.Lift()
	})
}

// Out of memory: what ends runs still works, what begins them says so and leaves
// nothing half done. A key of another type is an error, and nothing is written.
func TestFault31_32_LedgerOnASpoiltServer(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "maxmemory-policy noeviction")
	c := e.client("a")
	l := e.jobLedger(c, lockcore.LedgerConfig{})
	run, _ := e.claimed(l)
	must(e, e.raw.ConfigSet(e.Context(), "maxmemory", "1").Err())
	st := lockcore.LedgerState{Last: run.Tick}
	if err := run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""); err != nil {
		t.Errorf("completion while out of memory: %v", err)
	}
	_, err := l.Claim(e.Context(), run.Tick.Add(time.Second), st, lockcore.ClaimConfig{})
	if err == nil || errors.Is(err, lockcore.ErrNotClaimed) {
		t.Errorf("claim while out of memory: %v", err)
	}
	must(e, e.raw.ConfigSet(e.Context(), "maxmemory", "0").Err())
	if n := e.raw.HLen(e.Context(), e.key("job/draw", "open")).Val(); n != 0 {
		t.Errorf("%d runs are open", n)
	}
	run, err = l.Claim(e.Context(), run.Tick.Add(time.Second), st, lockcore.ClaimConfig{})
	must(e, err)
	must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))

	// Nor are a skip and an opening, or ends: of one's own run, and of a dead one that
	// may not be run again.
	must(e, e.raw.FlushAll(e.Context()).Err())
	run, st = e.dead(lockcore.LedgerConfig{MaxAttempts: 1})
	runs := e.key("job/draw", "runs")
	must(e, e.raw.Set(e.Context(), runs, "text", 0).Err())
	before := fmt.Sprint(e.raw.HGetAll(e.Context(), e.key("job/draw", "open")).Val(), e.raw.HGetAll(e.Context(), e.key("job/draw", "job")).Val())
	_, err = e.jobLedger(e.client("b"), lockcore.LedgerConfig{MaxAttempts: 1}).Claim(e.Context(), run.Tick, st, lockcore.ClaimConfig{})
	next := run.Tick.Add(time.Second)
	skipped := l.Skip(e.Context(), lockcore.LedgerState{Last: run.Tick}, lockcore.Skip{First: next, Last: next, Count: 1, Reason: "missed"})
	_, opened := l.Open(e.Context(), lockcore.LedgerState{Last: next})
	for _, err := range []error{err, skipped, opened, run.Complete(e.Context(), lockcore.OutcomeSucceeded, "")} {
		if err == nil || errors.Is(err, lockcore.ErrNotClaimed) || errors.Is(err, lockcore.ErrSuperseded) {
			t.Errorf("with a history that is a string: %v", err)
		}
	}
	if after := fmt.Sprint(e.raw.HGetAll(e.Context(), e.key("job/draw", "open")).Val(), e.raw.HGetAll(e.Context(), e.key("job/draw", "job")).Val()); after != before {
		t.Errorf("an end that could not be recorded has changed %s to %s", before, after)
	}

	for _, part := range []string{"job", "open", "runs", "live", "fence"} {
		must(e, e.raw.FlushAll(e.Context()).Err())
		st := e.opened(l)
		tick := st.Last.Add(2 * time.Second)
		key := e.key("job/draw", part)
		must(e, e.raw.Del(e.Context(), key).Err())
		other := "a string"
		if part == "fence" { // which is one, and may say anything
			other = "a list"
			must(e, e.raw.RPush(e.Context(), key, "text").Err())
		} else {
			must(e, e.raw.Set(e.Context(), key, "text", 0).Err())
		}
		before := e.raw.HGetAll(e.Context(), e.key("job/draw", "job")).Val()
		_, err := l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{Skipped: &lockcore.Skip{First: tick.Add(-time.Second), Last: tick.Add(-time.Second), Count: 1, Reason: "missed"}})
		if part != "live" && (err == nil || errors.Is(err, lockcore.ErrNotClaimed)) {
			t.Errorf("%s is %s: claim says %v", part, other, err)
		}
		if part == "live" && err != nil {
			t.Errorf("%s is %s, which a claim does not use: %v", part, other, err)
		}
		if part != "live" && part != "job" {
			if after := e.raw.HGetAll(e.Context(), e.key("job/draw", "job")).Val(); len(after) != len(before) || after["last"] != before["last"] {
				t.Errorf("%s is %s: the claim has changed %v to %v", part, other, before, after)
			}
		}
	}
}

func TestLedgerRefusals(t *testing.T) {
	inBubble(t, func(e *env) {
		c := e.client("a")
		for _, c2 := range []struct {
			name  string
			cfg   lockcore.LedgerConfig
			field string
		}{
			{"", lockcore.LedgerConfig{}, "job"},
			{"a b", lockcore.LedgerConfig{}, "job"},
			{"a{b", lockcore.LedgerConfig{}, "job"},
			{strings.Repeat("x", 201), lockcore.LedgerConfig{}, "job"},
			{"draw", lockcore.LedgerConfig{Lease: ttl(time.Millisecond)}, "LeaseConfig.TTL"},
			{"draw", lockcore.LedgerConfig{MaxAttempts: -1}, "LedgerConfig.MaxAttempts"},
			{"draw", lockcore.LedgerConfig{KeepRuns: 10_001}, "LedgerConfig.KeepRuns"},
			{"draw", lockcore.LedgerConfig{KeepRuns: -1}, "LedgerConfig.KeepRuns"},
			{"draw", lockcore.LedgerConfig{Retain: time.Hour}, "LedgerConfig.Retain"},
			{"draw", lockcore.LedgerConfig{Definition: "a b"}, "LedgerConfig.Definition"},
			{"draw", lockcore.LedgerConfig{Schedule: "a b"}, "LedgerConfig.Schedule"},
		} {
			_, err := c.Ledger(c2.name, c2.cfg)
			var refused *lockcore.ConfigError
			if !errors.As(err, &refused) || refused.Field != c2.field {
				e.Errorf("Ledger(%q, %+v): %v, want %s refused", c2.name, c2.cfg, err, c2.field)
			}
		}
		l := e.jobLedger(c, lockcore.LedgerConfig{})
		st := e.opened(l)
		good := st.Last.Add(time.Second)
		one := lockcore.Skip{First: good, Last: good, Count: 1, Reason: "x"}
		claim := func(tick time.Time, skip *lockcore.Skip) error {
			_, err := l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{Skipped: skip})
			return err
		}
		with := func(change func(*lockcore.Skip)) *lockcore.Skip {
			s := one
			change(&s)
			return &s
		}
		for what, err := range map[string]error{
			"tick":                     claim(time.Time{}, nil),
			"tick of 1970":             claim(time.UnixMilli(0), nil),
			"tick of a microsecond":    claim(good.Add(time.Microsecond), nil),
			"tick far ahead":           claim(time.UnixMilli(1<<48), nil),
			"skip up to the tick":      claim(good, &one),
			"skip backwards":           claim(good.Add(time.Second), with(func(s *lockcore.Skip) { s.First = good.Add(time.Millisecond) })),
			"skip of none":             claim(good.Add(time.Second), with(func(s *lockcore.Skip) { s.Count = 0 })),
			"skip without reason":      claim(good.Add(time.Second), with(func(s *lockcore.Skip) { s.Reason = "" })),
			"skip for a long reason":   claim(good.Add(time.Second), with(func(s *lockcore.Skip) { s.Reason = "two words" })),
			"runs":                     func() error { _, err := l.Runs(e.Context(), 0); return err }(),
			"Skip":                     l.Skip(e.Context(), st, lockcore.Skip{}),
			"nil context, Claim":       func() error { _, err := l.Claim(nil, good, st, lockcore.ClaimConfig{}); return err }(), //nolint:staticcheck // on purpose
			"nil context, Open":        func() error { _, err := l.Open(nil, st); return err }(),                                //nolint:staticcheck // on purpose
			"nil context, Status":      func() error { _, err := l.Status(nil); return err }(),                                  //nolint:staticcheck // on purpose
			"nil context, Leave":       l.Leave(nil, st),                                                                        //nolint:staticcheck // on purpose
			"nil context, Pause":       l.Pause(nil),                                                                            //nolint:staticcheck // on purpose
			"nil context, Trigger":     func() error { _, err := l.Trigger(nil); return err }(),                                 //nolint:staticcheck // on purpose
			"nil context, server time": func() error { _, _, err := l.Now(nil); return err }(),                                  //nolint:staticcheck // on purpose
		} {
			mustIs(e, err, lockcore.ErrConfig)
			if err == nil {
				e.Errorf("%s was not refused", what)
			}
		}
		run, err := l.Claim(e.Context(), good, st, lockcore.ClaimConfig{})
		must(e, err)
		mustIs(e, run.Complete(e.Context(), "great", ""), lockcore.ErrConfig)
		mustIs(e, run.Complete(nil, lockcore.OutcomeFailed, ""), lockcore.ErrConfig) //nolint:staticcheck // on purpose
		_, err = run.Retry(nil)                                                      //nolint:staticcheck // on purpose
		mustIs(e, err, lockcore.ErrConfig)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		if _, err := e.jobLedger(e.client("b"), lockcore.LedgerConfig{}).Status(e.Context()); err != nil {
			e.Error(err)
		}
		must(e, c.Close(e.Context()))
		mustIs(e, claim(good, nil), lockcore.ErrClosed)
		_, err = l.Open(e.Context(), st)
		mustIs(e, err, lockcore.ErrClosed)
	})
}

// Close gives the runs of a Client back: another takes them over at once.
func TestCloseHandsRunsOver(t *testing.T) {
	inBubble(t, func(e *env) {
		a, b := e.client("a"), e.client("b")
		run, _ := e.claimed(e.jobLedger(a, lockcore.LedgerConfig{Lease: ttl(time.Minute)}))
		must(e, a.Close(e.Context()))
		if !errors.Is(context.Cause(run.Context()), lockcore.ErrClosed) {
			e.Errorf("the run's context ended with %v", context.Cause(run.Context()))
		}
		l := e.jobLedger(b, lockcore.LedgerConfig{})
		again, err := l.Claim(e.Context(), run.Tick, e.opened(l), lockcore.ClaimConfig{})
		must(e, err)
		if again.Attempt != 2 || again.Token() <= run.Token() {
			e.Errorf("attempt %d, token %d after %d", again.Attempt, again.Token(), run.Token())
		}
		mustIs(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""), lockcore.ErrClosed)
	})
}
