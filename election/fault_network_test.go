package election_test

import (
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The reply to the claim of a term is lost: the term is counted once, and its record is
// announced once.
//
// Caught mutant: leader_claim without the check of the record's token.
func TestFault08_ClaimReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("leader_claim"), Count: 1})
		a := e.replica(c, e.quick())
		term := a.run().leads(1)
		if lost.Fired() != 1 || term.Number != 1 {
			t.Errorf("lost %d, term %+v", lost.Fired(), term)
		}
		if r := e.record(); r["term"] != "1" || r["acquired"] != strconv.FormatInt(term.Since.UnixMilli(), 10) {
			t.Errorf("the record is %v", r)
		}
	})
}
