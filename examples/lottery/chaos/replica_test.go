package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/logtest"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/redisurl"
	"github.com/noonlock/noonlock/singleton"
)

// binary is the lottery, built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "lottery-chaos-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
		binary = filepath.Join(folder, "lottery")
		build := exec.Command("go", "build", "-buildvcs=false", raceFlag, "-o", binary, "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the lottery: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

const (
	// patience ends waits that would otherwise never end.
	patience = time.Minute
	lease    = time.Second
	every    = time.Second
	winners  = 10
)

// world holds what the replicas of one test share.
type world struct {
	t      *testing.T
	server *servers.RedisServer
	url    string // of Redis
	redis  string // address for the replicas, host:port, each through a proxy; "": url
	sql    servers.SQL
	env    []string
	stderr *os.File // of the replicas, instead of their logs; usually nil
	ledger *singleton.Job
	db     *sql.DB
}

// newWorld starts a Redis that loses no data when it is killed, and a database.
func newWorld(t *testing.T) *world {
	t.Helper()
	server := durableRedis(t)
	return newWorldOn(t, server, server.Addr())
}

func durableRedis(t *testing.T) *servers.RedisServer {
	t.Helper()
	return servers.Redis(t, "appendonly yes", "appendfsync always")
}

// newWorldOn is newWorld with another address of Redis for the replicas.
func newWorldOn(t *testing.T, server *servers.RedisServer, address string) *world {
	t.Helper()
	w := newWorldAt(t, "redis://"+address)
	w.server, w.redis = server, address
	return w
}

// newWorldAt is newWorld with the URL of a Redis that the test has started.
func newWorldAt(t *testing.T, url string) *world {
	t.Helper()
	w := &world{t: t, sql: servers.MariaDB(t), url: url}
	var text strings.Builder
	text.WriteString("id,eligible\n")
	for i := range 60 {
		fmt.Fprintf(&text, "id-%02d,%v\n", i, i%3 != 0)
	}
	list := filepath.Join(t.TempDir(), "entrants.csv")
	if err := os.WriteFile(list, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = []string{
		"LOTTERY_ENTRANTS=" + list, "LOTTERY_SCHEDULE=@every " + every.String(), "LOTTERY_LEASE=" + lease.String(),
		"LOTTERY_WINNERS=" + strconv.Itoa(winners), "LOTTERY_HTTP=127.0.0.1:0", "LOTTERY_LOG_FORMAT=json",
		"GORACE=halt_on_error=1",
	}
	options, err := redisurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(options)
	client, err := lockcore.New(rdb, lockcore.Config{Identity: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close(context.Background()) // it holds no leases
		rdb.Close()
	})
	if w.ledger, err = singleton.NewJob(client, noon.Job); err != nil {
		t.Fatal(err)
	}
	w.db, err = sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s", w.sql.User, w.sql.Password, w.address(), w.sql.Database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close() })
	return w
}

func (w *world) address() string { return net.JoinHostPort(w.sql.Host, strconv.Itoa(w.sql.Port)) }

func (w *world) dsn(address string) string {
	return "mysql://" + w.sql.User + ":" + w.sql.Password + "@" + address + "/" + w.sql.Database
}

// replica is one process with its own network to Redis and to the database.
type replica struct {
	name   string
	redis  *lockcoretest.Proxy // nil if world.redis is ""
	sql    *link
	logs   *logtest.Logs
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// start starts a replica. hear, if not nil, receives its log lines.
func (w *world) start(name string, hear func(*replica, logtest.Entry)) *replica {
	w.t.Helper()
	r := &replica{name: name, sql: newLink(w.t, w.address()), logs: &logtest.Logs{}, exited: make(chan struct{})}
	url := w.url
	if w.redis != "" {
		r.redis = lockcoretest.NewProxy(w.t, w.redis)
		url = "redis://" + r.redis.Addr()
	}
	if hear != nil {
		r.logs.Hear = func(e logtest.Entry) { hear(r, e) }
	}
	r.cmd = exec.Command(binary, "serve")
	r.cmd.Env = slices.Concat(w.env, []string{"LOTTERY_REDIS=" + url, "LOTTERY_DATABASE=" + w.dsn(r.sql.Addr()), "LOTTERY_IDENTITY=" + name})
	r.cmd.Stderr = r.logs
	if w.stderr != nil {
		r.cmd.Stderr = w.stderr
	}
	r.cmd.SysProcAttr = dieWithUs()
	started := make(chan error, 1)
	go func() {
		// The kernel kills the process when the thread that started it ends, so this
		// thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			_ = r.cmd.Wait() // ProcessState has the result
			close(r.exited)
		}
	}()
	if err := <-started; err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		r.kill()
		if w.t.Failed() {
			w.t.Logf("the log of %s:\n%s", r.name, r.logs)
		}
		if strings.Contains(r.logs.Foreign(), "DATA RACE") || strings.Contains(r.logs.Foreign(), "panic") {
			w.t.Errorf("%s has printed:\n%s", r.name, r.logs.Foreign())
		}
	})
	return r
}

func (r *replica) signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) } // the process may have ended

// kill ends the process with SIGKILL, frozen or not, and waits for its end.
func (r *replica) kill() {
	r.signal(syscall.SIGKILL)
	<-r.exited
}

// terminate sends SIGTERM and returns the exit code.
func (r *replica) terminate(ctx context.Context) (int, error) {
	r.signal(syscall.SIGTERM)
	return r.wait(ctx)
}

// wait returns the exit code of a process that ends, -1 if a signal has ended it.
func (r *replica) wait(ctx context.Context) (int, error) {
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s does not stop: %w", r.name, context.Cause(ctx))
	}
}

// lottery runs one command of the program.
func (w *world) lottery(ctx context.Context, args ...string) (code int, out string) {
	w.t.Helper()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = slices.Concat(w.env, []string{"LOTTERY_REDIS=" + w.url, "LOTTERY_DATABASE=" + w.dsn(w.address())})
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// awaitStopping waits until a replica knows that it must stop. It requests only that check,
// since other readiness checks may hang while a lease expires.
func (w *world) awaitStopping(ctx context.Context, r *replica) {
	w.t.Helper()
	address := w.await(ctx, r, "listening", 1).Address
	w.poll(ctx, "the replica does not know that it is to stop", func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz/stopping", nil)
		if err != nil {
			w.t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusInternalServerError
	})
}

// retry calls try until it succeeds. A connection to a restarted server turns out to be
// closed only when it is used.
func (w *world) retry(ctx context.Context, try func() error) {
	w.t.Helper()
	var err error
	w.poll(ctx, "the ledger cannot be read", func() bool {
		err = try()
		if err != nil {
			w.t.Logf("trying again: %v", err)
		}
		return err == nil
	})
}

// poll waits until the condition is true.
func (w *world) poll(ctx context.Context, what string, ask func() bool) {
	w.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !ask() {
		select {
		case <-again.C:
		case <-ctx.Done():
			w.t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}

// await returns the nth line that the replica logs with this message.
func (w *world) await(ctx context.Context, r *replica, message string, nth int) logtest.Entry {
	w.t.Helper()
	e, err := r.logs.Await(ctx, message, nth)
	if err != nil {
		w.t.Fatalf("%s: %v", r.name, err)
	}
	return e
}
