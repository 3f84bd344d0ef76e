package election_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/lockcore"
)

// rights are those that the package comment names.
func rights(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, section, found := strings.Cut(string(text), "# Rights\n")
	section, _, closed := strings.Cut(section, "// # ")
	if !found || !closed {
		t.Fatal("the package comment has no section of rights")
	}
	_, section, _ = strings.Cut(section, "leader:*:")
	for _, word := range regexp.MustCompile(`\b[a-z]+\b`).FindAllString(section, -1) {
		switch word {
		case "and", "for", "what", "the", "scripts", "do":
		default:
			names = append(names, word)
		}
	}
	return names
}

// A user with exactly the documented rights can do everything, and is refused
// nothing.
func TestRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	all := rights(t)
	if len(all) < 20 {
		t.Fatalf("rights: %v", all)
	}
	user := func(name string) {
		rules := []string{"reset", "on", ">secret", "resetkeys", "resetchannels", "~noonlock:*", "&noonlock:ch:*", "&noonlock:leader:*", "-@all"}
		for _, r := range all {
			rules = append(rules, "+"+r)
		}
		must(e, e.raw.ACLSetUser(e.Context(), name, rules...).Err())
	}
	as := func(name, identity string) *lockcore.Client {
		opt := e.direct()
		opt.Username, opt.Password = name, "secret"
		return e.clientWith(opt, lockcore.Config{Identity: identity})
	}
	user("exact")
	a, b, c := e.replica(as("exact", "a"), quick("")), e.replica(as("exact", "b"), quick("")), e.replica(as("exact", "c"), quick(""))
	e.lineUp(a, b, c)
	e.pass(2 * leaseDuration)
	must(e, a.le.TransferTo(e.Context(), "c"))
	c.leads(1)
	e.until("all have heard", func() bool { return b.told() == "a c" })
	if got := a.line(); !strings.HasPrefix(got, "b") {
		t.Errorf("the line is %q", got)
	}
	for _, r := range []*replica{b, a, c} {
		r.stop()
	}
	if log := e.raw.ACLLog(e.Context(), 10).Val(); len(log) > 0 {
		for _, l := range log {
			t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
		}
	}
}
