package singleton_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Class S: requests and replies are lost, duplicated or late.

// The reply to a claim or to a completion is lost, or the request is sent twice: the tick is run
// once nevertheless, at the first attempt, and recorded once. Other faults of a connection are
// tested in lockcore, and repeated requests in the ledger.
// Mutants: a repeated claim gets "busy" because of its own record; it counts as an attempt; a
// repeated completion gets "superseded"; the work is repeated; a second entry is written.
func TestFault24_28_29_ALostAnswer(t *testing.T) {
	for _, script := range []string{"claim", "complete"} {
		for _, kind := range []string{lockcoretest.SwallowReply, lockcoretest.DuplicateRequest} {
			t.Run(script+" "+kind, func(t *testing.T) {
				onBoth(t, func(t *testing.T, f *fleet) {
					r := f.replica("a", singleton.Config{TTL: f.ttl(time.Second)})
					r.add("draw", "@every 200ms", nil, singleton.JobConfig{})
					r.run()
					f.recorded("draw", 1)
					rule := r.net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request(script), Count: 2})
					f.Until("the fault was injected twice", func() bool { return rule.Fired() == 2 })
					f.recorded("draw", len(f.runs("draw"))+2)
					f.ranOnce("draw")
					f.ended("draw")
					f.proven("draw", every(t, 200*time.Millisecond))
					if n := f.log.Count("another replica has taken"); n != 0 {
						t.Errorf("%d requests were answered as superseded", n)
					}
				})
			})
		}
	}
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
