package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testenv"
)

// Wrong arguments are refused before anything is sent, in one line that names what is wrong, and without a password.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://127.0.0.1:1"
	short := filepath.Join(t.TempDir(), "token")
	testenv.Must(t, os.WriteFile(short, []byte("0123456789abcde\n"), 0o600))
	for _, c := range []struct {
		url, command string
		want         string
	}{
		{"", "get locks", "--redis"},
		{"", "doctor", "no Redis server is given"},
		{"", "next @hourly --count 0", "--count is 0"},
		{"", "next H/0", "five fields"},
		{"http://x", "get locks", "redisurl: "},
		{"http://u:sesame@h", "doctor", "redisurl"},
		{"redis://u:sesame@host:port", "get locks", "redisurl: "},
		{nowhere, "get locks -o xml", "--output"},
		{nowhere, "get locks --bogus", "--bogus"},
		{nowhere, "get locks --timeout 0", "--timeout"},
		{nowhere, "get locks --prefix {", "Config.Prefix"},
		{nowhere, "get locks {", "name"},
		{nowhere, "get jobs a{b", "name"},
		{nowhere, "get jobs " + strings.Repeat("x", 300), "name"},
		{nowhere, "get jobs --state broken", `--state is "broken"`},
		{nowhere, "get jobs --sort age", `--sort is "age"`},
		{nowhere, "get pod/x", `the kind is "pod"`},
		{nowhere, "describe draw", `the kind is "draw"`},
		{nowhere, "describe job/draw lock/orders", "needs one name"},
		{nowhere, "describe job/draw job/poll", "describe job needs NAME"},
		{nowhere, "get all draw", `the name is "draw"`},
		{nowhere, "get job/draw pod/x", `the name is "pod/x"`},
		{nowhere, "cancel slow --tick now", `--tick is "now"`},
		{nowhere, "rerun draw --tick yesterday", `--tick is "yesterday"`},
		{nowhere, "rerun draw", "--tick"},
		{nowhere, "history draw --limit 0", "--limit"},
		{nowhere, "history draw --since yesterday", "--since"},
		{nowhere, "history", "JOB"},
		{nowhere, "pause a b", "JOB"},
		{nowhere, "bogus", "bogus"},
		{nowhere, "get locks --prefix a --prefix b", `it was given before as "a"`},
		{nowhere, "get locks -o json --output yaml", `it was given before as "json"`},
		{nowhere, "--timeout 1s get locks --timeout=2s", `it was given before as "1s"`},
		{nowhere, "release x --yes=false --yes", `it was given before as "false"`},
		{nowhere, "run --lock a --lock b -- true", `it was given before as "a"`},
		{nowhere, "get locks --redis " + nowhere + " --redis " + nowhere, "2 are given"},
		{nowhere, "get locks --list 2", "--list and --max-ttl are for"},
		{nowhere, "run --lock x --max-ttl 1s -- true", "--list and --max-ttl are for"},
		{nowhere, "doctor --list 2", "doctor reads"},
		{nowhere, "doctor -o xml", `--output is "xml"`},
		{nowhere, "doctor --timeout 0s", "--timeout is 0s"},
		{nowhere, "doctor --timeout 2m", "Config.Timeout is 2m0s"},
		{nowhere, "doctor --uses mutex,everything", "everything"},
		{nowhere, "doctor --observe 1ms", "Config.Observe is 1ms"},
		{nowhere, "verify good --since noon", ""},
		{nowhere, "verify good --until noon", ""},
		{nowhere, "verify good --output wide", ""},
		{nowhere, "copy-to", ""},
		{nowhere, "cron poll", ""},
		{nowhere, "cron poll @daily", ""},
		{nowhere, "cron poll @daily --", ""},
		{nowhere, "cron poll -- true", ""},
		{nowhere, "cron poll never -- true", ""},
		{nowhere, "cron a{b @daily -- true", ""},
		{nowhere, "cron poll @daily --time-zone Nowhere -- true", ""},
		{nowhere, "cron poll @daily --time-zone Local -- true", ""},
		{nowhere, "cron poll @daily --catch-up some -- true", ""},
		{nowhere, "cron poll @daily --max-attempts 0 -- true", ""},
		{nowhere, "cron poll @daily --unknown-code 0 -- true", ""},
		{nowhere, "cron poll @daily --unknown-code 75 -- true", ""},
		{nowhere, "cron poll @daily --drain 0s -- true", ""},
		{nowhere, "cron poll @daily --ttl 1ms -- true", ""},
		{nowhere, "cron poll @daily --max-concurrent-runs -1 -- true", "Config.MaxConcurrentRuns is -1"},
		{nowhere, "cron --file - poll @daily -- true", "not both"},
		{nowhere, "cron --file -", "standard input has no job"},
		{nowhere, "cron --file " + short + "-missing", "--file: open"},
		{nowhere, "run -- true", ""},
		{nowhere, "run --lock orders", ""},
		{nowhere, "run --lock orders --", ""},
		{nowhere, "run --lock a{b -- true", ""},
		{nowhere, "run --lock job/x -- true", ""},
		{nowhere, "run --lock orders --mode shared -- true", ""},
		{nowhere, "run --lock orders -n 0 -- true", ""},
		{nowhere, "run --lock orders -n 2 --mode read -- true", "--slots or --mode"},
		{nowhere, "resize orders", "resize needs --slots"},
		{nowhere, "resize orders -n 1001", "from 1 to 1000"},
		{nowhere, "run --lock orders --wait -1s -- true", ""},
		{nowhere, "run --lock orders --ttl 1ms -- true", ""},
		{nowhere, "run --lock orders --ttl 25h -- true", ""},
		{nowhere, "run --lock orders --kill-after 6s -- true", ""},
		{nowhere, "run --lock orders --kill-after -1s -- true", ""},
		{nowhere, "run --lock orders --min-replicas -1 -- true", ""},
		{nowhere, "elect", ""},
		{nowhere, "elect board", ""},
		{nowhere, "elect board true", ""},
		{nowhere, "elect -- true", ""},
		{nowhere, "elect a{b -- true", ""},
		{nowhere, "elect board --lease 1ms -- true", ""},
		{nowhere, "elect board --http nowhere --timeout 1s", ""},
		{nowhere, "elect board --metrics nowhere -- true", ""},
		{nowhere, "run --lock orders --metrics nowhere -- true", ""},
		{nowhere, "elect board --pod-label leader=yes", "KUBERNETES_SERVICE_HOST"},
		{nowhere, "serve --http :7475", "--token-file"},
		{nowhere, "serve --http :0 --allow-actions", "--token-file"},
		{nowhere, "serve --http 0.0.0.0:0", "--token-file"},
		{nowhere, "serve --http [::]:0", "--token-file"},
		{nowhere, "serve --http 198.51.100.7:0", "--token-file"},
		{nowhere, "serve --http host.example:0", "--token-file"},
		{nowhere, "serve --http 7475", "127.0.0.1:7475"},
		{nowhere, "serve --http :0 --token-file " + short, "15 bytes"},
		{nowhere, "serve --token-file " + short + "-missing", "missing"},
		{nowhere, "serve --http 127.0.0.1:99999", "invalid port"},
		{nowhere, "serve --operator-header a@b", "X-Forwarded-User"},
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
