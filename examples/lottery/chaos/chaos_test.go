// Package chaos runs the lottery's binary in several processes, with a real Redis and a real MariaDB,
// and kills and freezes them.
package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const (
	every    = time.Second // between two noons
	lease    = time.Second
	replicas = 4
	patience = 2 * time.Minute
)

// Several replicas are killed and frozen in the middle of draws, and Redis is killed. Each noon is
// drawn once nevertheless.
func TestChaos(t *testing.T) {
	t.Parallel()
	faults := testenv.Size(9, 200)
	ctx, cancel := context.WithTimeout(t.Context(), patience+5*every*time.Duration(faults))
	defer cancel()
	w := newWorld(t)
	for range replicas {
		w.start()
	}
	for n := range faults {
		switch n % 4 {
		case 0, 1:
			w.atBegin(ctx).kill()
			w.start()
		case 2:
			w.freeze(w.atBegin(ctx))
		case 3:
			w.redis.Kill()
			w.pause(ctx, rand.N(lease*3/2))
			w.redis.Restart(t)
		}
		before := w.count("SELECT COUNT(*) FROM draws")
		w.until(ctx, "a noon to be drawn after a fault", func() bool { return w.count("SELECT COUNT(*) FROM draws") > before })
	}
	w.thaw.Wait()
	for _, r := range w.living() {
		r.signal(syscall.SIGTERM)
		if code := r.wait(ctx); code != 0 {
			t.Errorf("%s exits with %d after SIGTERM", r.name, code)
		}
	}
	first, last := w.count("SELECT MIN(tick) FROM draws"), w.count("SELECT MAX(tick) FROM draws")
	noons := (last-first)/every.Milliseconds() + 1
	full := w.count("SELECT COUNT(*) FROM (SELECT tick FROM winners GROUP BY tick HAVING COUNT(*) = 10) AS t")
	again := w.count("SELECT COUNT(*) FROM draws WHERE attempt > 1") + w.found()
	servers.Count(t, "%d faults in %d noons; %d of them were drawn or found by a successor", faults, noons, again)
	if full != noons || w.count("SELECT COUNT(*) FROM draws") != noons {
		t.Errorf("of %d noons, %d have ten different winners", noons, full)
	}
	if again == 0 {
		t.Error("no fault has hit a draw")
	}
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	verify := exec.CommandContext(ctx, w.binary, "verify", "--since", at(first), "--until", at(last+1))
	verify.Env = w.env
	if out, err := verify.CombinedOutput(); err != nil || !strings.Contains(string(out), "all noons were drawn, each once") {
		t.Errorf("lottery verify: %v\n%s", err, out)
	}
}

// world is what the replicas share.
type world struct {
	t      *testing.T
	binary string
	redis  *servers.RedisServer
	db     *sql.DB
	env    []string
	begun  chan *replica // replicas that log that a run begins
	thaw   sync.WaitGroup

	mu  sync.Mutex
	all []*replica
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, binary: filepath.Join(t.TempDir(), "lottery"), begun: make(chan *replica, 10_000)}
	w.redis = servers.Redis(t, "appendonly yes", "appendfsync always")
	d := servers.MariaDB(t)
	address := net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", w.binary, "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.env = []string{
		"LOTTERY_REDIS=redis://" + w.redis.Addr(), "LOTTERY_DATABASE=mysql://" + d.User + ":" + d.Password + "@" + address + "/" + d.Database,
		"LOTTERY_ENTRANTS=../entrants.csv", "LOTTERY_SCHEDULE=@every " + every.String(), "LOTTERY_LEASE=" + lease.String(),
		"LOTTERY_HTTP=127.0.0.1:0",
	}
	var err error
	if w.db, err = sql.Open("mysql", d.User+":"+d.Password+"@tcp("+address+")/"+d.Database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close() })
	return w
}

// count returns the number that a query selects, 0 without the tables.
func (w *world) count(query string) int64 {
	var n sql.NullInt64
	_ = w.db.QueryRowContext(w.t.Context(), query).Scan(&n) // 0 is wrong for each caller in the end
	return n.Int64
}

func (w *world) until(ctx context.Context, what string, holds func() bool) {
	w.t.Helper()
	for !holds() {
		if w.pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			w.t.Fatalf("waiting for %s: %v", what, context.Cause(ctx))
		}
	}
}

func (w *world) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// living returns the replicas that were not killed.
func (w *world) living() []*replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.all), func(r *replica) bool { return r.ended() })
}

// found returns how often a replica found the draw of another one.
func (w *world) found() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all {
		n += r.found
	}
	return n
}

// atBegin returns the next replica that begins a run.
func (w *world) atBegin(ctx context.Context) *replica {
	w.t.Helper()
	for len(w.begun) > 0 {
		<-w.begun // of earlier noons
	}
	for {
		select {
		case r := <-w.begun:
			if !r.ended() {
				return r
			}
		case <-ctx.Done():
			w.t.Fatalf("no run begins: %v", context.Cause(ctx))
		}
	}
}

// freeze stops a replica for longer than its lease, without waiting for it.
func (w *world) freeze(r *replica) {
	r.signal(syscall.SIGSTOP)
	w.thaw.Go(func() {
		time.Sleep(lease*5/4 + rand.N(lease))
		r.signal(syscall.SIGCONT)
	})
}

// replica is one process.
type replica struct {
	name   string
	cmd    *exec.Cmd
	found  int64         // draws of others; protected by mu of the world
	exited chan struct{} // closed when the process has ended
}

func (w *world) start() {
	w.t.Helper()
	w.mu.Lock()
	r := &replica{name: fmt.Sprintf("replica-%d", len(w.all)+1)}
	w.all = append(w.all, r)
	w.mu.Unlock()
	out, in, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	r.cmd = exec.Command(w.binary, "serve", "--identity", r.name) //nolint:noctx // it is killed below
	r.cmd.Env, r.cmd.Stderr, r.cmd.SysProcAttr = w.env, in, dieWithUs()
	r.exited, err = servers.Start(r.cmd)
	if err = errors.Join(err, in.Close()); err != nil {
		w.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		w.read(r, out)
	}()
	w.t.Cleanup(func() {
		r.kill()
		<-read
		out.Close()
	})
}

// read reads the log of a replica.
func (w *world) read(r *replica, out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		var line struct{ Msg string }
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			w.t.Errorf("%s has printed %s", r.name, in.Text()) // such as a panic
			continue
		}
		switch line.Msg {
		case "run begins":
			w.begun <- r
		case "draw was already committed":
			w.mu.Lock()
			r.found++
			w.mu.Unlock()
		}
	}
}

func (r *replica) signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) } // the process may have ended

// kill ends the process, frozen or not, and waits for its end.
func (r *replica) kill() {
	r.signal(syscall.SIGKILL)
	<-r.exited
}

func (r *replica) ended() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// wait returns the exit code of a process that ends.
func (r *replica) wait(ctx context.Context) int {
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		return -1
	}
}
