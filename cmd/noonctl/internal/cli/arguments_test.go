package cli_test

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Wrong arguments are refused before anything is sent, in one line that names what is wrong, and without a password.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	const nowhere, several = "redis://127.0.0.1:1", "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3"
	short := filepath.Join(t.TempDir(), "token")
	testenv.Must(t, os.WriteFile(short, []byte("0123456789abcde\n"), 0o600))
	for _, c := range []struct {
		url, command string
		want         string
	}{
		{"", "get locks", "--redis"},
		{"", "doctor", "no Redis server is given"},
		{"", "next H/0", "five fields"},
		{"http://x", "get locks", "redisurl: "},
		{"http://u:sesame@h", "doctor", "redisurl"},
		{"redis://u:sesame@host:port", "get locks", "redisurl: "},
		{nowhere, "get locks --bogus", "--bogus"},
		{nowhere, "get locks {", "name"},
		{nowhere, "get jobs a{b", "name"},
		{nowhere, "get jobs " + strings.Repeat("x", 300), "name"},
		{nowhere, "get pod/x", `the kind is "pod"`},
		{nowhere, "describe draw", `the kind is "draw"`},
		{nowhere, "describe job/draw lock/orders", "needs one name"},
		{nowhere, "describe job/draw job/poll", "describe job needs NAME"},
		{nowhere, "get all draw", `the name is "draw"`},
		{nowhere, "get job/draw pod/x", `the name is "pod/x"`},
		{nowhere, "rerun draw", "--tick"},
		{nowhere, "history", "JOB"},
		{nowhere, "pause a b", "JOB"},
		{nowhere, "bogus", "bogus"},
		{nowhere, "get locks --prefix a --prefix b", `it was given before as "a"`},
		{nowhere, "get locks -o json --output yaml", `it was given before as "json"`},
		{nowhere, "--timeout 1s get locks --timeout=2s", `it was given before as "1s"`},
		{nowhere, "release x --yes=false --yes", `it was given before as "false"`},
		{nowhere, "run --lock a --lock b -- true", `it was given before as "a"`},
		{nowhere, "get locks --redis " + nowhere + " --redis " + nowhere, "2 are given"},
		{nowhere, "doctor --list 2", "doctor reads"},
		{several, "run --lock x --list -1 -- true", "--list is -1"},
		{several, "run --lock x --max-ttl 1ms -- true", "--max-ttl is 1ms"},
		{several + " " + nowhere, "run --lock x -- true", "--redis is 4 clients"},
		{strings.ReplaceAll(several, "redis:", "redis+cluster:"), "run --lock x -- true", "--redis is the URL of a cluster"},
		{nowhere, "doctor --timeout 2m", "--timeout is 2m0s"},
		{nowhere, "copy-to", ""},
		{nowhere, "cron poll", ""},
		{nowhere, "cron poll @daily", ""},
		{nowhere, "cron poll @daily --", ""},
		{nowhere, "cron poll -- true", ""},
		{nowhere, "cron poll never -- true", ""},
		{nowhere, "cron a{b @daily -- true", ""},
		{nowhere, "cron poll @daily --time-zone Local -- true", ""},
		{nowhere, "cron poll @daily --unknown-code 75 -- true", ""},
		{nowhere, "cron --file - poll @daily -- true", "not both"},
		{nowhere, "cron --file -", "standard input has no job"},
		{nowhere, "run -- true", ""},
		{nowhere, "run --lock orders", ""},
		{nowhere, "run --lock orders --", ""},
		{nowhere, "run --lock job/x -- true", ""},
		{nowhere, "run --lock orders -n 2 --mode read -- true", "--slots or --mode"},
		{nowhere, "resize orders", "resize needs --slots"},
		{nowhere, "resize orders -n 1001", "from 1 to 1000"},
		{nowhere, "run --lock orders --ttl 25h -- true", ""},
		{nowhere, "run --lock orders --kill-after 6s -- true", ""},
		{nowhere, "elect", ""},
		{nowhere, "elect board", ""},
		{nowhere, "elect board true", ""},
		{nowhere, "elect -- true", ""},
		{nowhere, "elect a{b -- true", ""},
		{nowhere, "serve --http :7475", "--token-file"},
		{nowhere, "serve --http :0 --allow-actions", "--token-file"},
		{nowhere, "serve --http 0.0.0.0:0", "--token-file"},
		{nowhere, "serve --http 198.51.100.7:0", "--token-file"},
		{nowhere, "serve --http 7475", "127.0.0.1:7475"},
		{nowhere, "serve --http :0 --token-file " + short, "15 bytes"},
		{nowhere, "serve --http 127.0.0.1:99999", "invalid port"},
		{nowhere, "serve page", "unknown command"},
	} {
		args := strings.Fields(c.command)
		r := run(t.Context(), c.url, args...)
		check(t, r, 64, []string{c.want}, args)
		if strings.Contains(r.errOut, "sesame") {
			t.Errorf("a password is printed: %s", r.errOut)
		}
	}
}

// ofGo matches a field of the library.
var ofGo = regexp.MustCompile(`\b[A-Z]\w+\.[A-Z]|\b(New|Config)`)

// A wrong value of each flag of each command is refused with the name of the flag, and without a name in Go.
func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	const anything = "anything" // no value is wrong
	wrong := map[string]string{
		"redis": "http://x", "list": "2", "max-ttl": "1s", "redis-ca": "/none", "redis-cert": "/none", "redis-key": "/none", "prefix": "{", "timeout": "0s",
		"output": "xml", "state": "broken", "sort": "age", "since": "noon", "limit": "0", "uses": "everything", "observe": "1ms",
		"http": "nowhere", "operator-header": "a@b", "token-file": "/none", "time-zone": "Nowhere", "name": anything, "count": "0",
		"reason": "a\x01", "tick": "now", "at": "noon", "id": "a\x01", "payload": "@/none", "to": anything,
		"lock": "a{b", "mode": "shared", "slots": "0", "wait": "-1s", "ttl": "1ms", "kill-after": "-1s", "identity": "a\x01", "min-replicas": "-1",
		"metrics": "nowhere", "lease": "1ms", "pod-label": "x", "file": "/none", "max-concurrent-runs": "-1", "revision": "two",
		"unknown-code": "0", "drain": "0s", "run-timeout": "-1s", "max-attempts": "0", "retry": "1us",
		"starting-deadline": "-1s", "keep-runs": "-1", "catch-up": "some",
	}
	arguments := map[string]string{
		"run": "--lock=x -- true", "elect": "x -- true", "cron": "x @daily -- true",
		"get": "locks", "describe": "lock/x", "next": "@daily", "trigger": "--at=2030-01-01T00:00:00Z --id=7 x", "resize": "--slots=2 x",
		"doctor": "", "serve": "", "version": "", "get all": "",
	}
	for path, c := range commands(cli.Root()) {
		try := func(f *pflag.Flag) {
			value, known := wrong[f.Name]
			switch {
			case f.Value.Type() == "bool":
				value = "maybe"
			case !known:
				t.Errorf("%s: no wrong value of --%s is known", path, f.Name)
			case value == anything:
				return
			}
			given, known := arguments[path]
			if !known {
				given = "x"
			}
			args := slices.Concat(strings.Fields(path), []string{"--" + f.Name + "=" + value}, slices.DeleteFunc(strings.Fields(given), func(word string) bool {
				return strings.HasPrefix(word, "--"+f.Name+"=")
			}))
			r := run(t.Context(), "redis://127.0.0.1:1", args...)
			named := cmp.Or(map[string]string{"redis-cert": "--redis-key", "redis-key": "--redis-cert"}[f.Name], "--"+f.Name) // each needs the other
			if check(t, r, 64, []string{named}, args); ofGo.MatchString(r.errOut) {
				t.Errorf("noonctl %q: a name in Go: %s", args, r.errOut)
			}
		}
		c.LocalNonPersistentFlags().VisitAll(try)
		if path == "get locks" {
			c.InheritedFlags().VisitAll(try)
		}
	}
}

// commands returns a command and those below it, with the words after "noonctl".
func commands(c *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range c.Commands() {
		maps.Copy(all, commands(sub))
	}
	if path := strings.TrimPrefix(c.CommandPath(), "noonctl "); !c.Hidden && !strings.HasPrefix(path, "completion") && path != "help" {
		all[path] = c
	}
	return all
}
