// Command worker is one replica of a chaos run. It acquires locks, believes in its leases, writes to the resource and
// releases, until SIGTERM. It records each step, so that a judge can compare what all workers believed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/noonlock/noonlock/lockcore"
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
	if w.Library != "" {
		return w.peer(ctx)
	}
	if w.client, err = w.Connect(lockcore.Config{Identity: w.Process}); err != nil {
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

// random returns the random numbers of a kind, the same for each process with that seed.
func (w *worker) random(kind string) *rand.Rand {
	return rand.New(rand.NewPCG(w.Seed, uint64(slices.Index(w.Kinds, kind))))
}
