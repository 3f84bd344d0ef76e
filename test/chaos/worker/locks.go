package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// An acquire waits for a lock until ctx ends.
type acquire func(ctx context.Context) (*lease, error)

// A way is one way to acquire a lock.
type way struct {
	mode   string
	weight int
	writes bool
	call   acquire
}

// ours returns a call of lockcore.
func ours(call func(ctx context.Context) (*lockcore.Lease, error)) acquire {
	return func(ctx context.Context) (*lease, error) {
		l, err := call(ctx)
		if err != nil {
			return nil, err
		}
		return of(l), nil
	}
}

func of(l *lockcore.Lease) *lease {
	return &lease{l.Token(), l.Slot(), l.Check, l.Remaining, l.Unlock}
}

// busy is the longest pause between two leases of a lock that workers share.
const busy = 20 * time.Millisecond

// cycle acquires and releases until ctx ends, after pauses of at most idle.
func (w *worker) cycle(ctx context.Context, kind, name string, idle time.Duration, ways []way) {
	r := w.random(kind)
	for ctx.Err() == nil {
		at, n := 0, r.IntN(100)
		for n >= ways[at].weight {
			n -= ways[at].weight
			at++
		}
		chosen := ways[at]
		limit := w.TTL/2 + time.Duration(r.Int64N(int64(8*w.TTL)))
		asking, stop := context.WithTimeout(ctx, limit)
		t := w.ask(kind, name, chosen.mode, limit)
		l, err := chosen.call(asking)
		stop()
		if !t.granted(l, err) {
			retry.Sleep(ctx, time.Duration(r.Int64N(int64(w.TTL/5))), nil)
			continue
		}
		held := t.work(ctx, r, l, chosen.writes, false)
		if held {
			t.add(history.Release, nil)
		}
		err = l.unlock(context.WithoutCancel(ctx))
		if held {
			t.add(history.Released, err)
		}
		retry.Sleep(ctx, time.Duration(r.Int64N(int64(idle))), nil)
	}
}

// mutex uses a lock that all workers share, and one of its own.
func (w *worker) mutex(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	names := map[string]time.Duration{"orders": busy, "orders-" + history.Worker(w.Process): w.TTL / 10}
	if w.Peers { // they have one
		names = map[string]time.Duration{"orders": busy}
	}
	for name, idle := range names {
		m, err := w.client.Mutex(name, lockcore.LeaseConfig{TTL: w.TTL})
		if err != nil {
			return err
		}
		ways := []way{{"", 80, true, ours(m.Lock)}, {"try", 20, true, ours(m.TryLock)}}
		both.Go(func() { w.cycle(ctx, history.Mutex, name, idle, ways) })
	}
	return nil
}

func (w *worker) readWrite(ctx context.Context) error {
	m, err := w.client.RWMutex("catalog", w.Process, lockcore.LeaseConfig{TTL: w.TTL})
	if err != nil {
		return err
	}
	w.cycle(ctx, history.RW, "catalog", busy, []way{{"w", 40, true, ours(m.Lock)}, {"r", 60, false, ours(m.RLock)}})
	return nil
}

func (w *worker) semaphore(ctx context.Context) error {
	m, err := w.client.Semaphore("workers", w.Slots, lockcore.LeaseConfig{TTL: w.TTL})
	if err != nil {
		return err
	}
	ways := []way{{"", 80, true, ours(m.Acquire)}, {"try", 20, true, ours(m.TryAcquire)}}
	w.cycle(ctx, history.Semaphore, "workers", busy, ways)
	return nil
}

func (w *worker) election(ctx context.Context) error {
	const name = "controller"
	r := w.random(history.Election)
	t := w.ask(history.Election, name, "", 0)
	held := false
	le, err := election.NewLeaderElector(w.client, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			held = t.lead(ctx, r, r.IntN(4) == 0)
		},
		OnStoppedLeading: func() {
			if held {
				t.add(history.Released, nil)
			}
			t = w.ask(history.Election, name, "", 0)
		},
	}, election.Config{LeaseDuration: w.TTL, ShutdownTimeout: 2 * w.TTL})
	if err != nil {
		return err
	}
	return le.Run(ctx)
}

// lead works with the lease of ctx. It reports whether the lease was valid until the end of the work.
func (t *term) lead(ctx context.Context, r *rand.Rand, whole bool) (held bool) {
	l := of(lockcore.FromContext(ctx))
	if held = t.granted(l, l.check()) && t.work(ctx, r, l, true, whole); held {
		t.ended(l)
	}
	return held
}

// ended records the end of work that does not release its lease itself.
func (t *term) ended(l *lease) {
	if err := l.check(); err != nil {
		t.add(history.Lost, err)
	} else {
		t.add(history.Release, nil)
	}
}

func (w *worker) partitions(ctx context.Context) error {
	const name = "shards"
	seed := w.random(history.Partitions).Uint64()
	lead := func(ctx context.Context, index int) {
		t := w.ask(history.Partitions, name, "", 0)
		t.about.Slot = index
		t.lead(ctx, rand.New(rand.NewPCG(seed, uint64(index))), true)
	}
	cfg := partition.Config{LeaseDuration: w.TTL, ShutdownTimeout: 2 * w.TTL}
	p, err := partition.NewRunner(w.client, name, w.Parts, lead, cfg)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
