package singleton_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Class S: requests and replies are lost, duplicated or late.

// The reply to a claim is lost, or the request is sent twice, or the connection is reset
// after it: the tick is run once nevertheless, at the first attempt.
// Mutants: a repeated claim gets "busy" because of its own record; it counts as an attempt;
// it does not extend the hold.
func TestFault24_28_ALostClaim(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{
		lockcoretest.SwallowReply, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest,
		lockcoretest.DropRequest, lockcoretest.ResetBefore, lockcoretest.TrickleReply,
	} {
		t.Run(string(kind), func(t *testing.T) {
			where := inBubble
			if kind == lockcoretest.SwallowReply || kind == lockcoretest.DuplicateRequest {
				where = onBoth
			}
			where(t, func(t *testing.T, f *fleet) {
				r := f.replica("a", singleton.Config{TTL: time.Second})
				r.add("draw", "@every 200ms", nil, singleton.JobConfig{})
				r.run()
				f.recorded("draw", 1)
				rule := r.net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request("claim"), Count: 3})
				f.Until("the fault was injected three times", func() bool { return rule.Fired() == 3 })
				f.recorded("draw", len(f.runs("draw"))+2)
				f.ranOnce("draw")
				f.proven("draw", every(t, 200*time.Millisecond))
			})
		})
	}
}

// Every answer to the claims of one replica is lost until it stops trying: another replica
// gets the tick, and no attempt is counted, because no work began.
// Mutants: an abandoned claim stays for its TTL; it counts as an attempt.
func TestFault24_28_AnAbandonedClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a, b := f.replica("a", singleton.Config{TTL: time.Minute}), f.replica("b", singleton.Config{TTL: time.Minute})
		for _, r := range []*replica{a, b} {
			r.add("draw", "@every 10m", nil, singleton.JobConfig{MaxAttempts: 1})
			r.run()
		}
		f.recorded("draw", 1)
		b.net.Partition() // until a has claimed the tick without an answer
		var gaveUp atomic.Bool
		lost := a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: func(cmd []string) bool {
			gaveUp.CompareAndSwap(false, request("abandon")(cmd))
			return request("claim")(cmd) && !gaveUp.Load()
		}})
		// Then a must claim nothing, because it would be the first one again, without an
		// answer.
		a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			return request("claim")(cmd) && gaveUp.Load()
		}})
		f.Until("a has claimed and abandoned the claim", func() bool { return lost.Fired() > 0 && gaveUp.Load() })
		b.net.Heal()
		healed := time.Now()
		f.Until("the tick is recorded", func() bool { return len(f.runs("draw")) == 2 })
		if took := time.Since(healed); took > 15*time.Second {
			t.Errorf("the tick waited for %v, although its claim was abandoned", took)
		}
		record := f.runs("draw")[1]
		if record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 1 {
			t.Errorf("record is %+v", record)
		}
		f.ranOnce("draw")
	})
}

// Claims arrive after they were abandoned: they must not hold the tick for an unused TTL,
// nor count as attempts.
// Mutant: no tombstone is written, or it is not checked.
func TestFault13_ClaimsThatComeLate(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a, b := f.replica("a", singleton.Config{TTL: time.Minute}), f.replica("b", singleton.Config{TTL: time.Minute})
		for _, r := range []*replica{a, b} {
			r.add("draw", "@every 10m", nil, singleton.JobConfig{MaxAttempts: 1})
			r.run()
		}
		f.recorded("draw", 1)
		f.Pass(time.Minute) // the servers know the scripts now
		away := b.net.Partition()
		late := a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: request("claim")})
		f.Until("claims are held back", func() bool { return late.Fired() >= 1 })
		f.Until("they were abandoned", func() bool { return len(f.Raw.Keys(t.Context(), f.key("draw", "tomb:*")).Val()) >= 2 })
		held := late.Fired()
		late.Lift()
		f.Pass(100 * time.Millisecond)
		b.net.Heal()
		given := time.Now()
		record := f.recorded("draw", 2)[1]
		if took := time.Since(given); took > 10*time.Second || record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 1 {
			t.Errorf("after %v the record is %+v", took, record)
		}
		f.ranOnce("draw")
		lockcoretest.MustFire(t, away)
		t.Logf("%d claims came late", held)
	})
}

// The reply to a completion is lost, or the request is sent twice: it is recorded once, and
// never run again.
// Mutants: a repeated completion gets "superseded"; the work is repeated; a second entry is
// written.
func TestFault29_ALostCompletion(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{
		lockcoretest.SwallowReply, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest,
		lockcoretest.DropRequest, lockcoretest.ResetBefore,
	} {
		t.Run(string(kind), func(t *testing.T) {
			where := inBubble
			if kind == lockcoretest.SwallowReply || kind == lockcoretest.DuplicateRequest {
				where = onBoth
			}
			where(t, func(t *testing.T, f *fleet) {
				r := f.replica("a", singleton.Config{TTL: time.Second})
				r.add("draw", "@every 200ms", nil, singleton.JobConfig{})
				r.run()
				f.recorded("draw", 1)
				rule := r.net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request("complete"), Count: 3})
				f.Until("the fault was injected three times", func() bool { return rule.Fired() == 3 })
				f.recorded("draw", len(f.runs("draw"))+2)
				f.ranOnce("draw")
				f.ended("draw")
				f.proven("draw", every(t, 200*time.Millisecond))
				if n := f.log.Count("another replica has taken"); n != 0 {
					t.Errorf("%d completions were answered as superseded", n)
				}
			})
		})
	}
}

// Runs that end without a fault leave no tombstone, whatever their outcome is and however many
// replicas want them. Each start of a replica leaves one.
//
// Mutants: each completion writes one; each lost claim does.
func TestOrdinaryRunsLeaveNoTombstones(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{})
			for _, job := range []string{"draw", "fails", "waits"} {
				r.add(job, "@every 1s", func(context.Context, singleton.Run) error {
					if job == "fails" {
						return errBroken
					}
					if job == "waits" {
						time.Sleep(1500 * time.Millisecond) // the next tick is late
					}
					return nil
				}, singleton.JobConfig{MaxAttempts: 1})
			}
			r.run()
		}
		for _, job := range []string{"draw", "fails", "waits"} {
			f.recorded(job, 6)
			if left := f.Raw.Keys(t.Context(), f.key(job, "tomb:*")).Val(); len(left) != 3 {
				t.Errorf("job %s: want one tombstone for each replica: %q", job, left)
			}
		}
	})
}

// The reply to a completion is lost, and then the server is unreachable for longer than the
// tombstone of the run lasts. The repeated request is answered from the history, and the
// replica does not count as superseded.
// Mutant: only the tombstone shows that the run has ended.
func TestFault29_ACompletionUnansweredForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := map[string]*replica{}
		var lost *lockcoretest.Rule
		for _, name := range []string{"a", "b", "c"} {
			all[name] = f.replica(name, singleton.Config{})
			all[name].add("draw", "@every 1h", func(_ context.Context, run singleton.Run) error {
				if lost == nil {
					lost = all[run.Holder].net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: request("complete")})
				}
				return nil
			}, singleton.JobConfig{})
		}
		for _, r := range all {
			r.run()
		}
		f.recorded("draw", 1) // without an answer to its holder
		f.Pass(10 * time.Minute)
		if n := len(f.Raw.Keys(t.Context(), f.key("draw", "tomb:*")).Val()); n != 0 {
			t.Fatalf("%d tombstones are left", n)
		}
		lost.Lift()
		f.Until("the holder is answered", func() bool { return f.log.Count("\"run ended") > 0 })
		if n := f.log.Count("another replica has taken"); n != 0 {
			t.Errorf("%d were answered as superseded", n)
		}
		f.recorded("draw", 3)
		f.ranOnce("draw")
		f.ended("draw")
	})
}

// Some replies to renewals are lost: the run continues, and no other replica takes it over.
// Mutants: a renewal that is not answered ends the lease; it is not sent again.
func TestFault25_SomeRenewalsAreLost(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{
		lockcoretest.SwallowReply, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest, lockcoretest.DropRequest,
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			all := f.three("@every 1m", sleep(20*time.Second), singleton.JobConfig{})
			first := f.begun("draw", 1)[0]
			f.Pass(2 * time.Second)
			rule := all[first.replica].net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request("renew"), Count: 1})
			f.Until("a renewal was hit", func() bool { return rule.Fired() == 1 })
			if record := f.recorded("draw", 1)[0]; record.Attempt != 1 || record.Outcome != singleton.OutcomeSucceeded {
				t.Errorf("%v: record is %+v", kind, record)
			}
			f.ranOnce("draw")
		})
	}
}

// All replies to renewals are lost, although the server extends the hold: the old deadline
// applies, the work ends before another can begin, and the tick is run again.
// Mutant: a lease is valid from the time of its last renewal, answered or not.
func TestFault25_AllRenewalsAreLost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := f.three("@every 1h", hang(1), singleton.JobConfig{})
		first := f.begun("draw", 1)[0]
		f.Pass(2 * time.Second)
		lost := time.Now()
		rule := all[first.replica].net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: request("renew")})
		second := f.begun("draw", 2)[1]
		ended := f.book.all()[0].end
		if ended.IsZero() || ended.After(second.begin) || ended.Sub(lost) > 2*time.Second {
			t.Errorf("the work ended %v after the first loss, and the next began at %v", ended.Sub(lost), second.begin.Sub(lost))
		}
		if second.run.Attempt != 2 || second.run.Token <= first.run.Token || !second.run.Tick.Equal(first.run.Tick) {
			t.Errorf("after %+v came %+v", first.run, second.run)
		}
		lockcoretest.MustFire(t, rule)
	})
}

// A replica that shuts down releases its tick, and the reply to that is lost, or the
// request is duplicated: another replica has the tick at once, and one more attempt is
// counted.
// Mutants: a repeated release opens the run of the next holder; a lost reply leaves the
// tick to the end of its hold.
func TestFault26_ALostHandOver(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{lockcoretest.SwallowReply, lockcoretest.DuplicateRequest, lockcoretest.DropRequest} {
		inBubble(t, func(t *testing.T, f *fleet) {
			all := map[string]*replica{}
			for _, name := range []string{"a", "b", "c"} {
				r := f.replica(name, singleton.Config{TTL: time.Minute, Drain: time.Second})
				r.add("draw", "@every 1h", hang(1), singleton.JobConfig{MaxAttempts: 2})
				r.run()
				all[name] = r
			}
			first := f.begun("draw", 1)[0]
			rule := all[first.replica].net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request("abandon"), Count: 1})
			stopped := time.Now()
			all[first.replica].stop()
			second := f.begun("draw", 2)[1]
			if took := second.begin.Sub(stopped); took > 20*time.Second || second.run.Attempt != 2 || second.run.Token <= first.run.Token {
				t.Errorf("%v: after %v came %+v", kind, took, second.run)
			}
			if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 2 {
				t.Errorf("%v: record is %+v", kind, record)
			}
			lockcoretest.MustFire(t, rule)
		})
	}
}

// Between the attempts of a holder the reply to the count is lost, or the request is
// duplicated: each attempt is counted exactly once.
// (FAULTS 27 is about a reentrant lock's count; this is the count of a job.)
// Mutant: a repeated request counts again.
func TestFault27_ALostCountOfAttempts(t *testing.T) {
	boom := errors.New("boom")
	for _, kind := range []lockcoretest.Kind{
		lockcoretest.SwallowReply, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest, lockcoretest.DropRequest,
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			r := f.replica("a", singleton.Config{})
			r.add("draw", "@every 1m", func(context.Context, singleton.Run) error { return boom }, singleton.JobConfig{MaxAttempts: 4})
			r.run()
			f.recorded("draw", 1) // the script is known
			n := len(f.book.all())
			rule := r.net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request("retry"), Count: 2})
			record := f.recorded("draw", 2)[1]
			attempts := f.book.all()[n:]
			if len(attempts) != 4 || record.Attempt != 4 || record.Outcome != singleton.OutcomeFailed {
				t.Fatalf("%v: %d attempts, record %+v", kind, len(attempts), record)
			}
			for i, e := range attempts {
				if e.run.Attempt != i+1 || e.run.Token != attempts[0].run.Token {
					t.Errorf("%v: attempt %d is %+v", kind, i+1, e.run)
				}
			}
			if rule.Fired() != 2 {
				t.Errorf("%v: the fault was injected %d times", kind, rule.Fired())
			}
		})
	}
}
