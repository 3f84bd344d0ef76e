package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const secret = "hunter2secret"

// lottery runs the program in this process.
func lottery(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	code = run(ctx, args, environ, &out, &errs)
	return code, out.String(), errs.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testenv.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const fiveEntrants = "id,eligible\na,true\nb,true\nc,true\nd,true\ne,false\n"

// Invalid settings are refused in one sentence, which names the flag or the variable and no password.
// Nothing is connected or written.
func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			conn.Close()
			t.Error("a server was connected")
		}
	}()
	server := listener.Addr().String()
	list := write(t, "entrants.csv", fiveEntrants)
	valid := []string{
		"LOTTERY_REDIS=redis://user:" + secret + "@" + server, "LOTTERY_DATABASE=mysql://user:" + secret + "@" + server + "/lottery",
		"LOTTERY_ENTRANTS=" + list, "LOTTERY_WINNERS=3", "LOTTERY_HTTP=127.0.0.1:0",
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, c := range []struct {
		args string
		env  string
		want string
	}{
		{"dance", "", `the command is "dance"; it must be demo, serve, winners, verify or accept`},
		{"serve --colour", "", "flag provided but not defined: -colour"},
		{"serve --lease", "", "flag needs an argument: -lease"},
		{"serve", "LOTTERY_LEASES=" + secret, `"LOTTERY_LEASES" is set, but no flag has this name; it must be unset`},
		{"serve", "LOTTERY_LEASE=99ms", "TTL is 99ms; it must be"},
		{"serve", "LOTTERY_LEASE=soon", `LOTTERY_LEASE is "soon"; parse error`},
		{"serve --winners 0", "", "--winners or LOTTERY_WINNERS: it is 0; it must be from 1 to 1000, and at most 4, the number of eligible entrants"},
		{"serve --winners 5", "", "--winners or LOTTERY_WINNERS: it is 5; it must be from 1 to 1000, and at most 4, the number of eligible entrants"},
		{"verify --schedule noon", "", `"noon"; it must be`},
		{"serve --schedule noon", "", `"noon"; it must be`},
		{"serve --entrants " + missing, "", "--entrants or LOTTERY_ENTRANTS: open " + missing},
		{"serve --identity a\tb", "", "Config.Identity"},
		{"serve --statusz --statusz-host localhost:8080", "", "Config.Hosts"},
		{"serve", "LOTTERY_REDIS=http://" + secret, "--redis or LOTTERY_REDIS: redisurl: the scheme is missing or unknown"},
		{"serve", "LOTTERY_REDIS_PASSWORD=" + secret, "--redis or LOTTERY_REDIS: a password is in the URL, and set apart from it, too; one of the two must be left out"},
		{"serve --database-key " + missing, "", "--database-cert or LOTTERY_DATABASE_CERT: it is not set; it must be set together with the key"},
		{"verify --since soon", "", `--since or LOTTERY_SINCE: it is "soon"; it must be a duration before now such as 48h, a date such as 2026-11-21`},
		{"winners --since 2026-11-21 --until 2026-11-20", "", `--until or LOTTERY_UNTIL: it is "2026-11-20"; it must be later than since, "2026-11-21"`},
	} {
		environ := append(append([]string{}, valid...), c.env)
		code, stdout, stderr := lottery(t, environ, strings.Split(c.args, " ")...)
		if code != refused || stdout != "" || !strings.HasPrefix(stderr, "lottery: ") || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q %s: code %d, %s%s", c.args, c.env, code, stdout, stderr)
		}
		if strings.Contains(stderr, secret) {
			t.Errorf("%q: the output contains a password: %s", c.args, stderr)
		}
	}
	// Each of several errors has a line. Kubernetes sets some variables for a Service named lottery.
	code, _, stderr := lottery(t, []string{"LOTTERY_SERVICE_HOST=10.0.0.1", "LOTTERY_PORT_8080_TCP=1", "LOTTERY_WINNERS="}, "serve")
	if code != refused || strings.Count(stderr, "\nlottery: ") != 2 || !strings.Contains(stderr, "--redis or LOTTERY_REDIS: redisurl: the scheme is missing") {
		t.Errorf("without settings: code %d, %s", code, stderr)
	}
}

// The program fails if its output is lost, for example because the disk is full.
func TestFault113_LostOutput(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"help"}, nil, full{}, &stderr); code != failed || !strings.Contains(stderr.String(), "no space") {
		t.Errorf("code %d, %s", code, &stderr)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// service is `lottery serve` in this process, with its log.
type service struct {
	*testenv.Env
	testenv.Log
	stop context.CancelFunc
	code chan int
}

// logs waits until the log has n matches of a pattern, and returns the last of them.
func (s *service) logs(n int, pattern string) (found []string) {
	s.Helper()
	s.Until(fmt.Sprintf("the log has %d times %s", n, pattern), func() bool {
		all := regexp.MustCompile(pattern).FindAllStringSubmatch(s.String(), -1)
		if len(all) >= n {
			found = all[n-1]
		}
		return found != nil
	})
	return found
}

// draws waits for n more draws of these two replicas.
func draws(n int, one, two *service) {
	one.Helper()
	count := func() int { return strings.Count(one.String()+two.String(), "draw committed") }
	want := count() + n
	one.Until(fmt.Sprintf("there are %d draws", want), func() bool { return count() >= want })
}

func serveWith(t *testing.T, environ []string) *service {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &service{Env: &testenv.Env{T: t}, stop: stop, code: make(chan int, 1)}
	go func() { s.code <- run(ctx, []string{"serve"}, environ, io.Discard, s) }()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("the log is\n%s", s)
		}
	})
	return s
}

// A replica draws, says why it cannot, and stops. verify passes then, and finds each change of the draws.
func TestServeAndVerify(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t, "requirepass "+secret)
	file := filepath.Join(t.TempDir(), "lottery.db")
	environ := []string{
		"LOTTERY_REDIS=redis://" + redis.Addr(), "LOTTERY_REDIS_PASSWORD=" + secret, "LOTTERY_DATABASE=sqlite:" + file, "LOTTERY_WINNERS=3",
		"LOTTERY_ENTRANTS=" + write(t, "entrants.csv", fiveEntrants), "LOTTERY_SCHEDULE=@every 1s", "LOTTERY_HTTP=127.0.0.1:0", "LOTTERY_STATUSZ=true",
	}
	if code, _, stderr := lottery(t, environ, "winners"); code != unseen {
		t.Errorf("winners without a database: code %d, %s", code, stderr)
	}
	s := serveWith(t, environ)
	url := "http://" + s.logs(1, `"msg":"listening","address":"([^"]+)"`)[1]
	s.logs(3, "draw committed")
	redis.Pause()
	answers(t, url+"/readyz/database", http.StatusInternalServerError, "asking Redis which database has the draws: ")
	redis.Resume()
	answers(t, url+"/readyz/database", http.StatusOK, "")
	s.stop()
	if code := <-s.code; code != 0 {
		t.Errorf("serve: code %d", code)
	}
	s.logs(1, "replica is stopping")
	if strings.Contains(s.String(), secret) {
		t.Error("the log contains a password")
	}

	code, stdout, stderr := lottery(t, environ, "winners", "--time-zone", "Asia/Shanghai")
	ticks := regexp.MustCompile(`(?m)^(\S+ \S+) \+08:00  drawn by \S+ at attempt 1, token \d+\n(  +\d  [abcd]\n){3}`).FindAllStringSubmatch(stdout, -1)
	if code != 0 || len(ticks) < 3 {
		t.Fatalf("winners: code %d, %s%s", code, stdout, stderr)
	}
	until := time.Now().Format(time.RFC3339Nano)
	verifies := func(want int, pattern string) {
		t.Helper()
		code, stdout, stderr := lottery(t, environ, "verify", "--until", until)
		if code != want || !regexp.MustCompile(pattern).MatchString(stdout+stderr) {
			t.Errorf("verify: code %d, %s%s; want %d and %s", code, stdout, stderr, want, pattern)
		}
	}
	verifies(0, `^from .* noons, .* draws in sqlite:.*\nall noons were drawn, each once, with 3 winners\n$`)
	db, err := sql.Open("sqlite", file)
	testenv.Must(t, err)
	defer db.Close()
	for _, c := range []struct{ change, undo, want string }{
		{"UPDATE winners SET job = 'x' WHERE position = 2", "UPDATE winners SET job = 'lottery'", `short    .* it has 2 of 3 winners\n`},
		{"UPDATE draws SET job = 'x' WHERE tick = (SELECT MIN(tick) FROM draws)", "UPDATE draws SET job = 'lottery'", `undrawn  .* the ledger in Redis has it as succeeded, but there is no draw\nlottery: problems found: 1\n`},
		{
			"INSERT INTO draws SELECT job, tick + 1, attempt, token, drawn_by, drawn_at FROM draws WHERE tick = (SELECT MIN(tick) FROM draws)", "DELETE FROM draws WHERE tick % 1000 = 1",
			`short .*\nextra    .* has drawn it, but the schedule does not have it\nlottery: problems found: 2\n`,
		},
	} {
		if _, err := db.ExecContext(t.Context(), c.change); err != nil {
			t.Fatal(err)
		}
		verifies(failed, c.want)
		if _, err := db.ExecContext(t.Context(), c.undo); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, _ = lottery(t, environ, "verify", "--since", "2026-01-01", "--until", "2026-01-02", "--allow-nothing")
	if code != 0 || !strings.Contains(stdout, "there is no noon to verify") {
		t.Errorf("verify of a time before: code %d, %s", code, stdout)
	}
	until = "2026-01-02"
	verifies(unseen, "^lottery: there is no noon to verify\n$")
	redis.Stop()
	verifies(unseen, "refused")
}

// FAULTS 142: two replicas of production, another database, and a copy of production's share a Redis and a prefix. Only
// production draws, also after Redis has lost its data and while a fourth database asks at that moment. Then an operator accepts
// the other database, and the replicas of production end. With a prefix of its own, an installation draws at once.
func TestFault142_OtherDatabases(t *testing.T) {
	t.Parallel()
	server, list := servers.Redis(t), write(t, "entrants.csv", fiveEntrants)
	path := func() string { return filepath.Join(t.TempDir(), "lottery.db") }
	replica := func(prefix, file string) (environ []string, s *service, ready string) {
		environ = []string{
			"LOTTERY_REDIS=redis://" + server.Addr(), "LOTTERY_DATABASE=sqlite:" + file, "LOTTERY_PREFIX=" + prefix,
			"LOTTERY_ENTRANTS=" + list, "LOTTERY_WINNERS=3", "LOTTERY_SCHEDULE=@every 1s", "LOTTERY_HTTP=127.0.0.1:0",
		}
		s = serveWith(t, environ)
		return environ, s, "http://" + s.logs(1, `"msg":"listening","address":"([^"]+)"`)[1] + "/readyz/database"
	}
	const prefix = "noonlock:a/lottery"
	production, copied, other := path(), path(), path()
	_, one, oneReady := replica(prefix, production)
	_, two, twoReady := replica(prefix, production)
	answers(t, oneReady, http.StatusOK, "")
	answers(t, twoReady, http.StatusOK, "")
	for _, s := range []*service{one, two} {
		s.logs(1, "database is available")
	}
	draws(1, one, two)
	db, err := sql.Open("sqlite", production)
	testenv.Must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "VACUUM INTO ?", copied)
	testenv.Must(t, err)
	var environs [][]string
	var readies []string
	for _, file := range []string{other, copied} {
		environ, _, ready := replica(prefix, file)
		answers(t, ready, http.StatusInternalServerError, "run lottery accept if")
		environs, readies = append(environs, environ), append(readies, ready)
	}
	winners := func() string {
		var all strings.Builder
		for _, environ := range environs {
			code, stdout, stderr := lottery(t, environ, "winners")
			if code > failed && !strings.Contains(stderr, "no such table") {
				t.Errorf("winners: code %d, %s", code, stderr)
			}
			all.WriteString(stdout)
		}
		return all.String()
	}
	before := winners()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	testenv.Must(t, rdb.FlushAll(t.Context()).Err())
	environ, _, ready := replica(prefix, path())
	environs = append(environs, environ)
	draws(3, one, two)
	for _, ready := range append(readies, ready) {
		answers(t, ready, http.StatusInternalServerError, "the draws are in another database")
	}
	if after := winners(); after != before {
		t.Errorf("other databases have draws:\n%s\nand had\n%s", after, before)
	}
	_, third, _ := replica("noonlock:b/lottery", path())
	third.logs(1, "draw committed")
	if code, stdout, stderr := lottery(t, environs[0], "accept"); code != 0 || !strings.Contains(stdout, "the draws are in sqlite:") {
		t.Errorf("accept: code %d, %s%s", code, stdout, stderr)
	}
	for _, s := range []*service{one, two} {
		s.logs(1, "lottery: the draws are in another database") // it has ended
		if code := <-s.code; code != failed {
			t.Errorf("a replica of production has ended with code %d", code)
		}
	}
	answers(t, readies[0], http.StatusOK, "")
}

// answers waits until a URL has an answer with that code and text.
func answers(t *testing.T, url string, want int, text string) {
	t.Helper()
	(&testenv.Env{T: t}).Until(fmt.Sprintf("%s answers %d %s", url, want, text), func() bool {
		request := testenv.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)).Must(t)
		response := testenv.Call(http.DefaultClient.Do(request)).Must(t)
		defer response.Body.Close()
		body := testenv.Call(io.ReadAll(response.Body)).Must(t)
		return response.StatusCode == want && strings.Contains(string(body), text)
	})
}
