package demo

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

const (
	quorumServers = 5
	quorumNoons   = 3
	killNoon      = 2 // noon at which two servers are killed
)

// quorumDemo is one run of RunQuorum.
type quorumDemo struct {
	stage
	schedule schedule.Schedule
	dsn      store.DSN
	servers  []*lockcoretest.Redis
	end      context.CancelFunc

	mu     sync.Mutex
	ticks  []time.Time // that were drawn, in order
	killed bool
	failed error
}

// RunQuorum runs the demo with five servers. Three replicas draw three noons. Two servers are
// killed in the middle of the second draw. It returns nil only if all checks passed.
func RunQuorum(ctx context.Context, cfg Config) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: it did not end within %s", ErrFailed, patience))
	defer cancel()
	running, end := context.WithCancel(ctx)
	defer end()
	d := &quorumDemo{stage: stage{out: cfg.Out, colours: cfg.Colours}, end: end}
	folder, err := os.MkdirTemp("", "lottery-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if d.schedule, err = schedule.Every(every); err != nil {
		return err
	}
	if d.dsn, err = store.ParseDSN("sqlite:" + filepath.Join(folder, "lottery.db")); err != nil {
		return err
	}
	for range quorumServers {
		server, err := lockcoretest.StartRedis()
		if err != nil {
			return err
		}
		defer server.Close()
		d.servers = append(d.servers, server)
	}
	st, err := store.Open(ctx, d.dsn, noon.StoreConfig(lease))
	if err != nil {
		return err
	}
	defer st.Close()
	totals, err := st.LoadEntrants(ctx, cfg.Entrants)
	if err != nil {
		return err
	}
	if totals.Eligible < winners {
		return &draw.TooFewError{Entrants: totals.Eligible, Winners: winners}
	}
	d.print("\n" + d.strong("The noon lottery on five Redis servers: a majority of them grants the lease.") + "\n\n")
	d.print(fmt.Sprintf("  %-9s A, B and C, in this process, each with its own connections\n", "replicas"))
	d.print(fmt.Sprintf("  %-9s %d, in this process, independent of each other\n", "servers", quorumServers))
	d.print(fmt.Sprintf("  %-9s %s\n", "database", d.dsn))
	d.print(fmt.Sprintf("  %-9s %d, one every %s, %d winners each, from %d eligible entrants\n", "noons", quorumNoons, every, winners, totals.Eligible))
	d.print(fmt.Sprintf("\nThe servers grant nothing for %s after their first start.\n", lease))
	var replicas sync.WaitGroup
	for _, name := range []string{"A", "B", "C"} {
		replicas.Go(func() {
			if err := d.replica(running, name); err != nil {
				d.mu.Lock()
				d.failed = err
				d.mu.Unlock()
				end()
			}
		})
	}
	replicas.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.failed != nil {
		return d.failed
	}
	return d.check(ctx, st)
}

// replica runs one replica until ctx ends.
func (d *quorumDemo) replica(ctx context.Context, name string) error {
	st, err := store.Open(ctx, d.dsn, noon.StoreConfig(lease))
	if err != nil {
		return err
	}
	defer st.Close()
	var clients []redis.UniversalClient
	for _, s := range d.servers {
		rdb := redis.NewClient(s.Options())
		defer rdb.Close() // lockcore opens its own connections with the same options
		clients = append(clients, rdb)
	}
	client, err := lockcore.NewQuorum(clients, lockcore.QuorumConfig{MaxTTL: lease, Config: lockcore.Config{Identity: name}})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
		defer cancel()
		_ = client.Close(ctx) // what cannot be released will expire
	}()
	drawing := &noon.Drawing{Store: st, Winners: winners}
	drawing.Written = func(_ context.Context, _ *sql.Tx, run singleton.Run, ids []string) error {
		d.written(name, run, ids)
		return nil
	}
	vigil := &noon.Vigil{Drawing: drawing, Schedule: d.schedule, Began: time.Now(), Holder: name, Starting: func(run singleton.Run) { d.starting(name, run) }, Drawn: func(singleton.Run) { d.drawn(name) }}
	daemon, err := singleton.NewDaemon(client, noon.Job, vigil.Keep, singleton.DaemonConfig{TTL: lease})
	if err != nil {
		return err
	}
	return daemon.Run(ctx)
}

func (d *quorumDemo) starting(name string, run singleton.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.ticks); n == 0 || !d.ticks[n-1].Equal(run.Tick) {
		d.ticks = append(d.ticks, run.Tick)
		d.heading(fmt.Sprintf("NOON %d of %d, at %s", len(d.ticks), quorumNoons, run.Tick.Local().Format(time.TimeOnly)))
	}
	d.line(name, fmt.Sprintf("holds the lease of a majority, token %d, and draws", run.Token))
}

// written is called within the transaction.
func (d *quorumDemo) written(name string, _ singleton.Run, ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(name, fmt.Sprintf("writes %d winners in a transaction:", len(ids)))
	d.table(ids)
	if len(d.ticks) == killNoon && !d.killed {
		d.killed = true
		for _, s := range d.servers[:2] {
			s.Stop()
		}
		d.line("-", d.alarm("SERVERS 1 AND 2 ARE KILLED before the commit")+": three of five still have the lease")
	}
}

func (d *quorumDemo) drawn(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(name, "commits")
	if len(d.ticks) == quorumNoons {
		d.end()
	}
}

// check checks the database, and prints the results.
func (d *quorumDemo) check(ctx context.Context, st *store.Store) error {
	draws, err := st.Draws(ctx, noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
	if err != nil {
		return err
	}
	d.heading("CHECKING THE DATABASE")
	held := true
	verdict := func(ok bool, format string, args ...any) {
		held = held && ok
		d.verdict(ok, fmt.Sprintf(format, args...))
	}
	verdict(d.killed, "two of five servers were killed in the middle of noon %d", killNoon)
	verdict(len(draws) == quorumNoons, "%d noons, %d draws", quorumNoons, len(draws))
	for i, one := range draws {
		ids, err := st.Winners(ctx, noon.Job, one.RunID)
		if err != nil {
			return err
		}
		different := map[string]bool{}
		for _, id := range ids {
			different[id] = true
		}
		next := i == 0 || one.Tick.Sub(draws[i-1].Tick) == every && one.Token >= draws[i-1].Token
		verdict(next && len(ids) == winners && len(different) == winners, "noon %d: drawn once by %s with token %d, %d different winners", i+1, one.DrawnBy, one.Token, len(different))
	}
	if !held {
		return fmt.Errorf("%w: a check failed", ErrFailed)
	}
	d.print("\nAll checks passed. With servers of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}
