//go:build unix

package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/servers"
)

// Each command works on several servers, or refuses them with a sentence that names it, whether they are
// given by flags or in the environment. Each takes one server.
func TestEachCommandWithOneAndSeveralServers(t *testing.T) {
	t.Parallel()
	const one, several = "redis://127.0.0.1:1", "redis://127.0.0.1:1 redis://127.0.0.1:2\nredis://127.0.0.1:3 "
	works := []string{"run", "elect", "doctor", "describe lock", "describe election"}
	none := []string{"copy-to", "next", "version"} // they use no server
	arguments := map[string][]string{
		"run": {"--lock", "x", "--", "true"}, "elect": {"x", "--http", "nowhere"}, "cron": {"x", "@daily", "--retry", "1us", "--", "true"},
		"get": {}, "serve": {"--http", "127.0.0.1:x"}, "doctor": {"--observe", "100ms"},
		"rerun": {"x", "--tick", "2020-01-01T00:00:00Z"}, "release": {"x", "--yes"}, "resize": {"x", "-n", "2"},
	}
	tried := 0
	for path, c := range commands(cli.Root()) {
		words := strings.Fields(path)
		if c.HasSubCommands() || slices.Contains(none, words[0]) {
			continue
		}
		tried++
		more, known := arguments[words[0]]
		if !known {
			more = []string{"x"}
		}
		args := slices.Concat(words, []string{"--timeout", "200ms"}, more)
		flags := slices.Concat(words, []string{"--timeout", "200ms"})
		for url := range strings.FieldsSeq(several) {
			flags = append(flags, "--redis", url)
		}
		flags = append(flags, more...)
		const refusal = " works on one server, and 3 are given"
		for _, r := range []result{run(t.Context(), several, args...), run(t.Context(), one, flags...)} {
			switch {
			case !slices.Contains(works, path):
				check(t, r, 64, []string{"noonctl: " + path + refusal}, args)
			case r.code != 69 && path != "elect":
				t.Errorf("%s on several servers that do not answer: %+v", path, r)
			}
		}
		if r := run(t.Context(), one, args...); r.code != 69 && path != "elect" && path != "cron" && path != "serve" || strings.Contains(r.errOut, "3 are given") {
			t.Errorf("%s on a server that does not answer: %+v", path, r)
		}
	}
	if tried < 20 {
		t.Errorf("only %d commands were tried", tried)
	}
}

// run, elect and describe work on the servers of a quorum. --list and --max-ttl are those of its Clients.
func TestQuorum(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	others := []*servers.RedisServer{servers.Redis(t), servers.Redis(t)}
	e.url += " redis://" + others[0].Addr() + " redis://" + others[1].Addr()
	quorum := func(args ...string) []string { return slices.Concat([]string{"--list", "3", "--max-ttl", "2s"}, args) }
	e.Until("the servers are a quorum", func() bool {
		return exits(t, e.program(quorum("run", "--lock", "first", "--ttl", "2s", "--", "true")...)).code == 0
	})
	holds := e.program(quorum("run", "--lock", "orders", "--ttl", "2s", "--identity", "ann", "--", "sh", "-c", "echo on; sleep 600")...)
	follow(t, holds)()
	leads := e.program(quorum("elect", "board", "--lease", "2s", "--identity", "ben", "--", "sh", "-c", "echo on; sleep 600")...)
	follow(t, leads)()
	describe := func(kind, name string) string { // with one space between the words
		return strings.Join(strings.Fields(e.must(quorum("describe", kind, name)...)), " ")
	}
	if out := describe("election", "board"); !strings.Contains(out, "Leader: ben ") {
		t.Errorf("describe election:\n%s", out)
	}
	if out := describe("lock", "orders"); strings.Count(out, " member 3 ann") != 3 || !strings.Contains(out, "State: held ") {
		t.Errorf("describe lock:\n%s", out)
	}
	if r := exits(t, e.program(quorum("run", "--lock", "orders", "--ttl", "2s", "--wait", "0s", "--", "true")...)); r.code != 75 || !strings.Contains(r.errOut, "ann") {
		t.Errorf("a second run: %+v", r)
	}
	for want, args := range map[string][]string{
		"--ttl is 3s; it must be at most --max-ttl (2s)":        quorum("run", "--lock", "x", "--ttl", "3s", "--", "true"),
		"--redis is 2 clients; it must be 3, 5, 7 or 9 clients": quorum("run", "--lock", "x", "--redis", "redis://127.0.0.1:1", "--redis", "redis://127.0.0.1:1", "--", "true"),
		"--slots or --mode works on one server, and several":    quorum("run", "--lock", "x", "--mode", "read", "--ttl", "2s", "--", "true"),
		"a quorum has mutexes only":                             quorum("run", "--lock", "x", "-n", "2", "--ttl", "2s", "--", "true"),
		"--min-replicas is for":                                 quorum("run", "--lock", "x", "--ttl", "2s", "--min-replicas", "1", "--", "true"),
	} {
		e.fails(64, []string{want}, args...)
	}
	others[0].Stop()
	if out := describe("lock", "orders"); strings.Count(out, " member 3 ann") != 2 {
		t.Errorf("describe lock without a server:\n%s", out)
	}
	others[1].Stop()
	if r := e.noonctl(quorum("describe", "lock", "orders", "--timeout", "1s")...); r.code != 69 || strings.Contains(r.out, "free") || !strings.Contains(r.out, "member") {
		t.Errorf("describe lock without two servers: %+v", r)
	}
	if code := exitOf(t, holds); code != 76 {
		t.Errorf("without two servers: exit code %d", code)
	}
}
