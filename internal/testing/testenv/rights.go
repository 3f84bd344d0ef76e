package testenv

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/lock"
)

// Rights returns the ACL rules for a user with these needs, as docs/SECURITY.md lists them.
func Rights(t testing.TB, needs lock.Needs, quorum bool) []string {
	t.Helper()
	scripts, err := needs.Scripts(quorum)
	Must(t, err)
	kinds, commands := append([]string{"ch"}, needs.Channels...), []string{"+evalsha", "+eval", "+subscribe", "+ping"}
	if quorum {
		kinds = append(kinds, "free")
	}
	if len(kinds) > 1 { // that of the process is kept
		commands = append(commands, "+unsubscribe")
	}
	rules := []string{"~noonlock:*", "resetchannels"}
	for _, kind := range kinds {
		rules = append(rules, "&noonlock:"+kind+":*")
	}
	called := needs.Commands
	for _, s := range scripts {
		called = slices.Concat(called, s.Commands())
	}
	var used []string
	for _, command := range called {
		used = append(used, "+"+strings.ToLower(command))
	}
	slices.Sort(used)
	return slices.Concat(rules, []string{"-@all"}, commands, slices.Compact(used))
}
