package election_test

import (
	"strings"
	"testing"

	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A user with exactly the documented rights can do everything without an error.
func TestRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	exact := e.As("exact", append(testenv.Rights(t, lock.NeedsOf(election.Election{}), false), "+type")...)
	as := func(identity string) *lockcore.Client {
		return e.ClientWith(exact, lockcore.Config{Identity: identity})
	}
	must(e, doctor.CheckRights(e.Context(), as("x"), electionName, doctor.UseElection))
	a, b, c := e.replica(as("a"), e.quick()), e.replica(as("b"), e.quick()), e.replica(as("c"), e.quick())
	e.queueUp(a, b, c)
	e.Pass(2 * leaseDuration)
	must(e, a.le.TransferTo(e.Context(), "c"))
	c.leads(1)
	e.Until("all have been notified", func() bool { return b.leaderNames() == "a c" })
	if got := a.queue(); !strings.HasPrefix(got, "b") {
		t.Errorf("the queue is %q", got)
	}
	for _, r := range []*replica{b, a, c} {
		r.stop()
	}
	for _, l := range e.Raw.ACLLog(e.Context(), 10).Val() {
		t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
	}
}
