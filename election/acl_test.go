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
	all := rights(t)
	if len(all) < 20 {
		t.Fatalf("rights: %v", all)
	}
	user := func(name string) {
		rules := append([]string{"reset", "on", ">secret"}, all...)
		must(e, e.Raw.ACLSetUser(e.Context(), name, rules...).Err())
	}
	as := func(name, identity string) *lockcore.Client {
		opt := e.Direct()
		opt.Username, opt.Password = name, "secret"
		return e.ClientWith(opt, lockcore.Config{Identity: identity})
	}
	user("exact")
	must(e, doctor.CheckRights(e.Context(), as("exact", "x"), electionName, doctor.UseElection))
	a, b, c := e.replica(as("exact", "a"), e.quick()), e.replica(as("exact", "b"), e.quick()), e.replica(as("exact", "c"), e.quick())
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
	if log := e.Raw.ACLLog(e.Context(), 10).Val(); len(log) > 0 {
		for _, l := range log {
			t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
		}
	}
}
