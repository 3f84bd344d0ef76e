// Command worker is one replica of a chaos run. It acquires locks, believes in its leases, writes to the resource and
// releases, until SIGTERM. It records each step, so that a judge can compare what all workers believed.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// kinds are the kinds of locks that a worker uses.
var kinds = map[string]func(w *worker, ctx context.Context) error{
	history.Mutex:      (*worker).mutex,
	history.RW:         (*worker).readWrite,
	history.Semaphore:  (*worker).semaphore,
	history.Election:   (*worker).election,
	history.Partitions: (*worker).partitions,
	history.Job:        (*worker).job,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A worker is the state of the process.
type worker struct {
	history.Config
	log      *history.Log
	client   *lockcore.Client
	resource *rpc.Client
	calls    atomic.Int64
}

func run() error {
	w := &worker{}
	if err := json.Unmarshal([]byte(os.Args[1]), &w.Config); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	if w.log, err = history.Create(w.Folder, w.Process); err != nil {
		return err
	}
	if w.resource, err = rpc.DialHTTP("tcp", w.Resource); err != nil {
		return err
	}
	w.log.Add(history.Event{What: history.Start})
	if w.Library != "" {
		return w.peer(ctx)
	}
	if w.client, err = w.connect(); err != nil {
		return err
	}
	failed := make(chan error, len(w.Kinds))
	var all sync.WaitGroup
	for _, kind := range w.Kinds {
		all.Go(func() {
			if err := kinds[kind](w, ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", kind, err)
				stop()
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	defer cancel()
	_ = w.client.Close(closing) // the servers may be away
	close(failed)
	return <-failed
}

// dial connects to a server through its proxy.
func (w *worker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, cmp.Or(w.Via[address], address))
}

// connect returns a Client whose connections go through the proxies of this worker.
func (w *worker) connect() (*lockcore.Client, error) {
	cfg := lockcore.Config{Identity: w.Process, LockDelay: w.LockDelay, MinReplicas: w.MinReplicas}
	if len(w.URLs) > 1 {
		var servers []redis.UniversalClient
		for _, url := range w.URLs {
			options, err := redis.ParseURL(url)
			if err != nil {
				return nil, err
			}
			options.Dialer = w.dial
			servers = append(servers, redis.NewClient(options))
		}
		return lockcore.NewQuorum(servers, lockcore.QuorumConfig{Config: cfg, MaxTTL: w.TTL})
	}
	options, err := redisurl.Parse(w.URLs[0])
	if err != nil {
		return nil, err
	}
	options.Dialer = w.dial
	return lockcore.NewFromOptions(options, cfg)
}

// random returns the random numbers of a kind, the same for each process with that seed.
func (w *worker) random(kind string) *rand.Rand {
	return rand.New(rand.NewPCG(w.Seed, uint64(slices.Index(w.Kinds, kind))))
}
