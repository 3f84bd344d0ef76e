package election_test

import (
	"os"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/lockcore"
)

// rights are the ACL rules of the package comment.
func rights(t *testing.T) (rules []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, section, found := strings.Cut(string(text), "# Rights\n")
	section, _, closed := strings.Cut(section, "// # ")
	if !found || !closed {
		t.Fatal("the package comment has no section of rights")
	}
	_, section, _ = strings.Cut(strings.ReplaceAll(section, "//", ""), "\n\n")
	section, _, _ = strings.Cut(section, "\n\n")
	return strings.Fields(section)
}

// A user with exactly the documented rights can do everything without an error.
func TestRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	exact := e.As("exact", rights(t)...)
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
