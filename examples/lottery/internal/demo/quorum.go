package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

const (
	quorumServers = 5
	quorumNoons   = 3
	killNoon      = 2 // noon at which two servers are killed
)

// quorumDemo is one run of RunQuorum. mu of its stage also protects ticks and killed.
type quorumDemo struct {
	*stage
	servers []*lockcoretest.Redis
	end     context.CancelFunc

	ticks  []time.Time // that were drawn, in order
	killed bool
}

// RunQuorum runs the demo with five servers. Three replicas draw three noons. Two servers are
// killed in the middle of the second draw. It returns nil only if all checks passed.
func RunQuorum(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	s, err := setUp(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.tearDown()
	running, end := context.WithCancel(ctx)
	defer end()
	d := &quorumDemo{stage: s, end: end}
	for range quorumServers {
		server, err := lockcoretest.StartRedis()
		if err != nil {
			return err
		}
		defer server.Close()
		d.servers = append(d.servers, server)
	}
	d.introduce("The noon lottery on five Redis servers: a majority of them grants the lease.",
		[2]string{"replicas", "A, B and C, in this process, each with its own connections"},
		[2]string{"servers", fmt.Sprintf("%d, in this process, independent of each other", quorumServers)},
		[2]string{"database", d.dsn.String()},
		[2]string{"noons", fmt.Sprintf("%d, one every %s, %d winners each, from %d eligible entrants", quorumNoons, every, winners, d.totals.Eligible)})
	d.print(fmt.Sprintf("\nThe servers grant nothing for %s after their first start.\n", lease))
	names := []string{"A", "B", "C"}
	failures := make([]error, len(names))
	var replicas sync.WaitGroup
	for i, name := range names {
		replicas.Go(func() {
			if failures[i] = d.replica(running, name); failures[i] != nil {
				end()
			}
		})
	}
	replicas.Wait()
	if err := errors.Join(append(failures, context.Cause(ctx))...); err != nil {
		return err
	}
	return d.check(ctx)
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
	defer release(ctx, client)
	vigil := &noon.Vigil{
		Schedule: d.schedule, Began: time.Now(), Holder: name,
		Drawing: &noon.Drawing{Store: st, Winners: winners, Written: func(_ context.Context, _ *sql.Tx, _ singleton.Run, ids []string) error {
			d.written(name, ids)
			return nil
		}},
		Starting: func(run singleton.Run) { d.starting(name, run) },
		Drawn:    func(singleton.Run) { d.drawn(name) },
	}
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
		d.noonHeading(len(d.ticks), quorumNoons, run.Tick)
	}
	d.line(name, fmt.Sprintf("holds the lease of a majority, token %d, and draws", run.Token))
}

// written is called within the transaction.
func (d *quorumDemo) written(name string, ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes(name, ids)
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
func (d *quorumDemo) check(ctx context.Context) error {
	since, until := time.UnixMilli(0), time.UnixMilli(math.MaxInt64)
	draws, err := d.store.Draws(ctx, noon.Job, since, until)
	if err != nil {
		return err
	}
	all, err := d.store.Winners(ctx, noon.Job, since, until)
	if err != nil {
		return err
	}
	d.heading("CHECKING THE DATABASE")
	v := &verdicts{stage: d.stage}
	v.check(d.killed, "two of five servers were killed in the middle of noon %d", killNoon)
	v.check(len(draws) == quorumNoons, "%d noons, %d draws", quorumNoons, len(draws))
	for i, one := range draws {
		won, different := all[one.Key()], map[string]bool{}
		for _, w := range won {
			different[w.ID] = true
		}
		next := i == 0 || one.Tick.Sub(draws[i-1].Tick) == every && one.Token >= draws[i-1].Token
		v.check(next && len(won) == winners && len(different) == winners, "noon %d: drawn once by %s with token %d, %d different winners", i+1, one.DrawnBy, one.Token, len(different))
	}
	return v.end("servers")
}
