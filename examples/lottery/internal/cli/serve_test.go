package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/logtest"
	"github.com/noonlock/noonlock/internal/servers"
)

// patience ends waits that would otherwise never end.
const patience = time.Minute

// startRedis starts a Redis in this process, with real time.
func startRedis(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// replica is lottery serve within the test.
type replica struct {
	t    *testing.T
	logs *logtest.Logs
	stop context.CancelFunc
	exit chan int
}

// serve starts a replica. It is stopped at the end of the test at the latest.
func serve(t *testing.T, args ...string) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{t: t, logs: &logtest.Logs{}, stop: stop, exit: make(chan int, 1)}
	go func() {
		r.exit <- cli.Run(ctx, cli.Process{
			Args:   append([]string{"serve", "--log-format=json", "--http=127.0.0.1:0"}, args...),
			Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: r.logs,
			Bundled: entrants.FS(fstest.MapFS{}, "none.csv"),
		})
	}()
	t.Cleanup(func() { r.end() })
	return r
}

// end stops the replica and returns its exit code.
func (r *replica) end() int {
	r.stop()
	code := <-r.exit
	r.exit <- code
	return code
}

func (r *replica) await(message string, nth int) logtest.Entry {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	e, err := r.logs.Await(ctx, message, nth)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// get requests a page of the replica.
func (r *replica) get(path string) (status int, body string) {
	r.t.Helper()
	address := r.await("listening", 1).Address
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// awaitPage repeats the request until the page has this status and contains the texts.
func (r *replica) awaitPage(path string, status int, contains ...string) {
	r.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	give := time.After(patience)
	for {
		got, body := r.get(path)
		fits := got == status
		for _, text := range contains {
			fits = fits && strings.Contains(body, text)
		}
		if fits {
			return
		}
		select {
		case <-again.C:
		case <-give:
			r.t.Fatalf("%s still answers %d %q; want %d with %q", path, got, body, status, contains)
		}
	}
}

// A replica whose Redis and database are unavailable logs that and waits, and continues when
// they are available. It is alive all the time, and prints no password.
func TestServeWaitsForServers(t *testing.T) {
	t.Parallel()
	process := servers.MariaDBServer(t)
	server := process.Database(t)
	process.Stop()
	redis := startRedis(t)
	redis.RequireAuth(secret)
	address := redis.Addr()
	redis.Close()

	r := serve(t, "--redis=redis://:"+secret+"@"+address, "--winners=3", "--schedule=@every 100ms", "--lease=1s",
		"--database=mysql://"+server.User+":"+server.Password+"@"+net.JoinHostPort(server.Host, strconv.Itoa(server.Port))+"/"+server.Database,
		"--entrants="+write(t, "entrants.csv", fiveEntrants))
	r.awaitPage("/livez", http.StatusOK, "ok")
	r.awaitPage("/readyz", http.StatusInternalServerError, "[-]redis failed", "[-]database failed", "[-]ledger failed", "readyz check failed")
	r.awaitPage("/readyz/redis", http.StatusInternalServerError, "dial tcp")
	r.awaitPage("/readyz/database", http.StatusInternalServerError, "store: opening mysql://")
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	r.awaitPage("/readyz", http.StatusInternalServerError, "[+]redis ok", "[-]database failed")
	if n := r.logs.Count("draw committed"); n != 0 {
		t.Fatalf("%d draws without a database", n)
	}
	process.Restart(t)
	r.awaitPage("/readyz?verbose", http.StatusOK, "[+]redis ok", "[+]database ok", "[+]ledger ok", "[+]stopping ok")
	r.await("draw committed", 3)

	// Both are unavailable again and then return. Both changes are reported, and the replica does not end.
	redis.Close()
	r.awaitPage("/readyz", http.StatusInternalServerError, "[-]redis failed", "[+]database ok")
	r.awaitPage("/livez?verbose", http.StatusOK, "[+]draw ok", "livez check passed")
	r.awaitPage("/metrics", http.StatusOK, "\nnoonlock_script_errors_total{reason=\"unsent\",")
	process.Stop()
	r.awaitPage("/readyz", http.StatusInternalServerError, "[-]redis failed", "[-]database failed")
	r.awaitPage("/livez", http.StatusOK, "ok")
	r.awaitPage("/healthz?exclude=redis&exclude=database", http.StatusOK, "ok")
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	process.Restart(t)
	r.awaitPage("/readyz", http.StatusOK)
	r.await("draw committed", r.logs.Count("draw committed")+3)

	_, page := r.get("/healthz?verbose")
	if code := r.end(); code != cli.Done {
		t.Errorf("exit code %d, want %d\n%s", code, cli.Done, r.logs)
	}
	if r.logs.Count("health check failed") == 0 {
		t.Error("the log does not tell what the pages withhold")
	}
	for _, password := range []string{secret, server.Password} {
		if strings.Contains(r.logs.String()+page, password) {
			t.Errorf("a password was shown:\n%s", r.logs)
		}
	}
}

// A wrong password does not end the replica and is not printed.
func TestServeWithWrongPasswords(t *testing.T) {
	t.Parallel()
	server := servers.MariaDB(t)
	redis := startRedis(t)
	redis.RequireAuth("another")
	r := serve(t, "--redis=redis://:"+secret+"@"+redis.Addr(), "--winners=3",
		"--database=mysql://"+server.User+":"+secret+"@"+net.JoinHostPort(server.Host, strconv.Itoa(server.Port))+"/"+server.Database,
		"--entrants="+write(t, "entrants.csv", fiveEntrants))
	r.awaitPage("/readyz/redis", http.StatusInternalServerError, "WRONGPASS")
	r.awaitPage("/readyz/database", http.StatusInternalServerError, "Access denied")
	_, page := r.get("/readyz")
	for _, withheld := range []string{"WRONGPASS", "Access denied"} {
		if strings.Contains(page, withheld) {
			t.Errorf("/readyz tells a reason: %s", page)
		}
	}
	if code := r.end(); code != cli.Done {
		t.Errorf("exit code %d, want %d", code, cli.Done)
	}
	if strings.Contains(r.logs.String()+page, secret) {
		t.Errorf("the password was shown: %s\n%s", page, r.logs)
	}
}

// If only one side uses TLS, the first error says so.
func TestOneSideWithoutTLS(t *testing.T) {
	t.Parallel()
	authority := servers.SelfSigned(t)
	server := authority.Sign(t)
	redis := servers.Redis(t, "tls-cert-file "+server.Cert, "tls-key-file "+server.Key, "tls-ca-cert-file "+authority.Cert)
	database := "--database=sqlite:" + play(t, 1).file
	for url, want := range map[string]string{
		"rediss://" + redis.Addr() + "?dial_timeout=500ms": "the server " + redis.Addr() + " does not speak TLS; the URL must begin with redis, not rediss",
		"redis://" + redis.SecureAddr():                    "the server " + redis.SecureAddr() + " needs TLS; the URL must begin with rediss, not redis",
	} {
		r := serve(t, "--redis="+url, database, "--winners=3", "--entrants="+write(t, "entrants.csv", fiveEntrants))
		if line := r.await("redis cannot be used; retrying", 1); line.Error != want || r.logs.Count("redis is not available yet; retrying") > 0 {
			t.Errorf("%s: the replica logs\n%s", url, r.logs)
		}
		r.awaitPage("/readyz/redis", http.StatusInternalServerError, want)
		if code := r.end(); code != cli.Done {
			t.Errorf("%s: exit code %d", url, code)
		}
		code, _, stderr := run(t.Context(), nil, "verify", "--redis="+url, database)
		if code != cli.Unseen || stderr != "lottery verify: "+want+"\n" {
			t.Errorf("%s: verify: exit code %d\n%s", url, code, stderr)
		}
	}
}

// The metrics, and the optional checks.
func TestServeReportsMetrics(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	shared := []string{
		"--redis=redis://" + redis.Addr(), "--winners=3", "--schedule=@every 1s",
		"--database=sqlite:" + filepath.Join(t.TempDir(), "lottery.db"), "--entrants=" + write(t, "entrants.csv", fiveEntrants),
	}
	r := serve(t, append(shared, "--stale-after=1h")...)
	r.await("run ended", 1)
	r.awaitPage("/metrics", http.StatusOK, `noonlock_job_runs_total{name="lottery",outcome="succeeded"} `,
		`noonlock_job_last_success_timestamp_seconds{name="lottery"}`, "noonlock_job_clock_offset_seconds", "go_goroutines", "process_start_time_seconds")
	r.awaitPage("/healthz?verbose", http.StatusOK, "[+]stale ok")
	r.awaitPage("/statusz/", http.StatusNotFound)
	for _, page := range []string{"/livez", "/readyz"} {
		if _, text := r.get(page + "?verbose"); strings.Contains(text, "stale") {
			t.Errorf("%s looks at what neither a restart nor another replica helps: %s", page, text)
		}
	}

	// The server's clock is an hour ahead, and no noon was ever drawn.
	redis = startRedis(t)
	redis.SetTime(time.Now().Add(time.Hour))
	off := serve(t, "--redis=redis://"+redis.Addr(), "--winners=3", "--database=sqlite:"+filepath.Join(t.TempDir(), "lottery.db"),
		"--entrants="+write(t, "entrants.csv", fiveEntrants), "--stale-after=10s")
	off.await("replica is ready", 1)
	off.awaitPage("/healthz", http.StatusInternalServerError, "[-]stale failed")
	off.awaitPage("/readyz", http.StatusOK)
	off.awaitPage("/livez", http.StatusOK)
}

// The page for people shows the job, and a browser that has it open does not delay a stop.
func TestServeStatusz(t *testing.T) {
	t.Parallel()
	redis := "--redis=redis://" + startRedis(t).Addr()
	rest := []string{
		"--winners=3", "--schedule=@every 1s", "--statusz=on", "--statusz-host=127.0.0.1", "--statusz-host=page.example",
		"--database=sqlite:" + filepath.Join(t.TempDir(), "lottery.db"), "--entrants=" + write(t, "entrants.csv", fiveEntrants),
	}
	r := serve(t, append(rest, redis)...)
	r.await("run ended", 1)
	r.awaitPage("/statusz/", http.StatusOK, "<title>noonlock</title>")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.await("listening", 1).Address+"/statusz/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign := request.Clone(t.Context())
	foreign.Host = "evil.example"
	refused, err := http.DefaultClient.Do(foreign)
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("with another host name: %s", refused.Status)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	shown := false
	for !shown && lines.Scan() {
		shown = strings.Contains(lines.Text(), `"name":"lottery"`)
	}
	if !shown {
		t.Errorf("the stream ended without the job: %v", lines.Err())
	}
	if code := r.end(); code != cli.Done {
		t.Errorf("exit code %d, want %d", code, cli.Done)
	}
	for lines.Scan() { // until the stream ends
	}

	code, _, stderr := run(t.Context(), nil, append([]string{"serve", "--redis=redis://127.0.0.1:1", "--redis=redis://127.0.0.1:2", "--redis=redis://127.0.0.1:3"}, rest...)...)
	if code != cli.Refused || !strings.Contains(stderr, "--statusz") || !strings.Contains(stderr, "several URLs of Redis") {
		t.Errorf("with several servers: exit code %d, %s", code, stderr)
	}
	for value, want := range map[string]string{
		"--statusz-host=a:80": `--statusz-host has "a:80"; it must have names in lower case`,
		"--statusz=off":       "--statusz-host: it needs --statusz on",
	} {
		code, _, stderr := run(t.Context(), nil, append([]string{"serve"}, append(rest, redis, value)...)...)
		if code != cli.Refused || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", value, code, stderr)
		}
	}
}

func TestServeRefusesAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken := newTrap(t)
	code, _, stderr := run(t.Context(), nil, "serve", "--redis=redis://127.0.0.1:1", "--database=sqlite:"+filepath.Join(t.TempDir(), "lottery.db"),
		"--winners=3", "--entrants="+write(t, "entrants.csv", fiveEntrants), "--http="+taken.addr)
	if code != cli.Failed || !strings.HasPrefix(stderr, "lottery serve: http: listen tcp "+taken.addr) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// Replicas load the entrants and draw concurrently, on each kind of database.
func TestServeTogether(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]func(*testing.T) (dsn string){
		"SQLite":     func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "lottery.db") },
		"MariaDB":    func(t *testing.T) string { t.Helper(); return dsn("mysql", servers.MariaDB(t)) },
		"PostgreSQL": func(t *testing.T) string { t.Helper(); return dsn("postgres", servers.PostgreSQL(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			shared := []string{
				"--redis=redis://" + redis.Addr(), "--database=" + fresh(t), "--winners=3",
			}
			var replicas []*replica
			for range 4 {
				replicas = append(replicas, serve(t, append(shared, "--schedule=@every "+playedEvery.String(), "--lease=1s", "--entrants="+write(t, "entrants.csv", fiveEntrants))...))
			}
			for _, r := range replicas {
				r.await("replica is ready", 1)
			}
			replicas[0].await("draw committed", 2)
			var ticks []time.Time
			for _, r := range replicas {
				if code := r.end(); code != cli.Done {
					t.Errorf("exit code %d, want %d\n%s", code, cli.Done, r.logs)
				}
				for _, e := range r.logs.Entries() {
					if e.Message == "draw committed" {
						ticks = append(ticks, e.Tick)
					}
				}
			}
			slices.SortFunc(ticks, time.Time.Compare)
			since, until := ticks[0].Format(time.RFC3339Nano), ticks[len(ticks)-1].Add(playedEvery).Format(time.RFC3339Nano)
			code, stdout, stderr := run(t.Context(), nil, append(append([]string{"verify"}, shared...), "--since="+since, "--until="+until)...)
			if want := fmt.Sprintf(": %d noons\n", len(ticks)); code != cli.Done || !strings.Contains(stdout, want) {
				t.Errorf("verify: exit code %d; want %d and %q\n%s%s", code, cli.Done, want, stdout, stderr)
			}
		})
	}
}

func dsn(scheme string, d servers.SQL) string {
	return scheme + "://" + d.User + ":" + d.Password + "@" + net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) + "/" + d.Database
}
