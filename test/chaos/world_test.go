package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

const patience = 30 * time.Second

// A world is the harness of one run: servers, workers, the resource and the history.
type world struct {
	t       testing.TB
	binary  string
	folder  string // of the history
	log     *history.Log
	top     *topology
	workers []*worker
	db      *sql.DB // nil without jobs
	base    history.Config
}

// newWorld starts n workers.
func newWorld(t testing.TB, binary string, top *topology, n int, careless bool, cfg history.Config) *world {
	t.Helper()
	//nolint:usetesting // it stays after a failure
	folder := testenv.Call(os.MkdirTemp("", "noonlock-chaos-")).Must(t)
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(folder)
		}
	})
	w := &world{t: t, binary: binary, folder: folder, top: top, base: cfg}
	w.log = testenv.Call(history.Create(folder, "harness")).Must(t)
	w.base.Resource = newResource(t, w.log, careless)
	w.base.Folder, w.base.URLs, w.base.LockDelay, w.base.MinReplicas = folder, top.urls, top.delay, top.replicas
	if slices.Contains(cfg.Kinds, history.Job) {
		w.openDatabase()
	}
	w.base.Epoch = history.Now() - time.Now().UnixNano()
	w.log.Add(history.Event{What: history.Setup, Config: &w.base})
	var stalls sync.WaitGroup
	stalls.Go(func() { w.recordStalls(t.Context()) })
	t.Cleanup(stalls.Wait)
	for i := range n {
		x := &worker{world: w, name: fmt.Sprint("w", i), proxies: map[string]*proxy{}}
		for _, address := range top.addresses {
			x.proxies[address] = newProxy(t, address)
		}
		w.workers = append(w.workers, x)
		x.start()
		t.Cleanup(x.kill)
	}
	return w
}

// recordStalls records when this process was not run in time, as then no other one may have been.
func (w *world) recordStalls(ctx context.Context) {
	const nap, late = 20 * time.Millisecond, 200 * time.Millisecond
	for ctx.Err() == nil {
		due := history.Now() + nap.Nanoseconds()
		retry.Sleep(ctx, nap, nil)
		if now := history.Now(); now > due+late.Nanoseconds() {
			w.log.Add(history.Event{T: due, What: history.Stall, Until: now})
		}
	}
}

func (w *world) openDatabase() {
	w.t.Helper()
	d := servers.MariaDB(w.t)
	dsn := mysql.NewConfig()
	dsn.User, dsn.Passwd, dsn.DBName = d.User, d.Password, d.Database
	dsn.Net, dsn.Addr = "tcp", fmt.Sprint(d.Host, ":", d.Port)
	w.base.Database = dsn.FormatDSN()
	w.db = testenv.Call(sql.Open("mysql", w.base.Database)).Must(w.t)
	w.t.Cleanup(func() { w.db.Close() })
	const table = "CREATE TABLE effects (tick BIGINT, token BIGINT UNSIGNED, process VARCHAR(20))"
	testenv.Call(w.db.ExecContext(w.t.Context(), table)).Must(w.t)
	once := testenv.Call(sqlonce.New(w.db, sqlonce.MySQL, sqlonce.Config{})).Must(w.t)
	testenv.Must(w.t, once.CreateTables(w.t.Context()))
}

// A worker is a process that is started again after it was killed.
type worker struct {
	world   *world
	name    string
	proxies map[string]*proxy // by the address of the server
	lives   int
	cmd     *exec.Cmd
	ended   chan struct{}
}

func (x *worker) process() string { return fmt.Sprint(x.name, ".", x.lives) }

func (x *worker) start() {
	w := x.world
	x.lives++
	cfg := w.base
	cfg.Process, cfg.Via = x.process(), map[string]string{}
	cfg.Seed += uint64(slices.Index(w.workers, x)<<16 + x.lives)
	for server, p := range x.proxies {
		cfg.Via[server] = p.address()
	}
	argument := testenv.Call(json.Marshal(cfg)).Must(w.t)
	output := testenv.Call(os.Create(filepath.Join(w.folder, x.process()+".log"))).Must(w.t)
	defer output.Close()
	x.cmd = exec.Command(w.binary, string(argument))
	x.cmd.Stdout, x.cmd.Stderr = output, output
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	x.ended = testenv.Call(servers.Start(x.cmd)).Must(w.t)
}

func (x *worker) signal(sig syscall.Signal) {
	_ = x.cmd.Process.Signal(sig) // it may have ended
}

// kill ends the process, frozen or not.
func (x *worker) kill() {
	var err error
	select {
	case <-x.ended:
		err = errors.New("it has ended by itself")
	default:
	}
	x.signal(syscall.SIGKILL)
	<-x.ended
	x.exited(err)
}

// exited records the end of a process, with an error if it ended by itself.
func (x *worker) exited(err error) {
	e := history.Event{What: history.Exit, W: x.process()}
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(x.world.folder, x.process()+".log"))
		e.Err = fmt.Sprint(err, ": ", string(text[max(0, len(text)-1000):]))
	}
	x.world.log.Add(e)
}

// client returns a Client that sees no faults of workers.
func (w *world) client() *lockcore.Client {
	w.t.Helper()
	cfg := lockcore.Config{Identity: "harness", Logger: lockcore.Discard}
	client := testenv.Call(w.base.Connect(cfg)).Must(w.t)
	w.t.Cleanup(func() { client.Close(context.WithoutCancel(w.t.Context())) })
	return client
}

// finish ends all workers, and records what they leave behind.
func (w *world) finish() {
	w.t.Helper()
	for _, x := range w.workers {
		w.log.Add(history.Event{What: history.Stop, W: x.process()})
		x.signal(syscall.SIGTERM)
	}
	for _, x := range w.workers {
		select {
		case <-x.ended:
			var err error
			if state := x.cmd.ProcessState; !state.Success() {
				err = &exec.ExitError{ProcessState: state}
			}
			x.exited(err)
		case <-time.After(patience):
			x.exited(errors.New("it did not end in time"))
			x.signal(syscall.SIGQUIT) // its log then has all goroutines
		}
	}
	time.Sleep(w.base.TTL * 11 / 10) // leases of dead processes
	client := w.client()
	for _, name := range []string{"orders", "catalog", "workers", "election/controller"} {
		seen, err := client.Inspect(w.t.Context(), name)
		if err != nil || len(seen.Holders) > 0 || seen.NoTTL {
			left := fmt.Sprintf("lock %s: %+v, %v", name, seen.Holders, err)
			w.log.Add(history.Event{What: history.Left, Target: "servers", Err: left})
		}
	}
	for _, s := range w.top.servers {
		if left := forever(w.t, s); len(left) > 0 {
			w.log.Add(history.Event{What: history.Left, Target: s.Addr(), Err: "keys without a TTL: " + strings.Join(left, " ")})
		}
	}
	for _, e := range w.ledger(client) {
		w.log.Add(e)
	}
}

// forever returns the keys of a server without a TTL, except those that belong to no name.
func forever(t testing.TB, s *servers.RedisServer) (keys []string) {
	t.Helper()
	rdb := s.Client()
	defer rdb.Close()
	for all := rdb.Scan(t.Context(), 0, "*", 1000).Iterator(); all.Next(t.Context()); {
		key := all.Val()
		if rdb.TTL(t.Context(), key).Val() == -1 && strings.Contains(key, "{") {
			keys = append(keys, key)
		}
	}
	return keys
}

// ledger returns the history of the job and its rows. Without an answer, it returns none.
func (w *world) ledger(client *lockcore.Client) (all []history.Event) {
	w.t.Helper()
	if w.db == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	job := testenv.Call(singleton.NewJob(client, "report")).Must(w.t)
	runs, err := job.Runs(ctx, 1000)
	if err != nil {
		w.t.Log("no history of the job:", err)
		return nil
	}
	now := history.Now()
	for _, run := range runs {
		all = append(all, history.Event{
			T: now, W: "harness", What: history.Run, Tick: run.Key(), Count: run.Count, Outcome: string(run.Outcome),
			Err: run.Error,
		})
	}
	rows := testenv.Call(w.db.QueryContext(ctx, "SELECT tick, token, process FROM effects")).Must(w.t)
	defer rows.Close()
	for rows.Next() {
		e := history.Event{T: now, W: "harness", What: history.Row}
		testenv.Must(w.t, rows.Scan(&e.Tick, &e.Token, &e.Target))
		all = append(all, e)
	}
	testenv.Must(w.t, rows.Err())
	return all
}

// judge judges what has happened until now. What processes write meanwhile does not count.
func (w *world) judge(more ...history.Event) judge.Verdict {
	w.t.Helper()
	now := history.Now()
	events := testenv.Call(history.Read(w.folder)).Must(w.t)
	events = slices.DeleteFunc(events, func(e history.Event) bool { return e.T > now })
	return judge.Judge(append(events, more...))
}
