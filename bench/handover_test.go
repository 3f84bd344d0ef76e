package bench_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// handOvers: from the end of the work of a holder to the work of the next one. The waiters use
// two clients in turn, as in two processes.
func handOvers(x *bench) {
	const of = "library; waiters:"
	took := x.table("Time, ms", of)
	commands := x.table("Commands", of)
	order := x.table("To the waiter that had waited longest, %", of)
	p := pace{moment: 5 * time.Millisecond, clients: 2, lasts: length()}
	x.compare([]library{noonlock, blpop, redisLock, redSync, rueidisLock, etcdMutex}, []int{2, 10, 100, 500}, p, func(name, waiters string, h handed) {
		took.add(name, waiters, h.ms)
		commands.add(name, waiters, h.commands)
		order.add(name, waiters, h.inOrder)
	})
}

// elections: a leader resigns, and two other candidates wait. Each has a client of its own. The
// locks are measured beside the electors. A leader leads for longer than etcd takes to begin a
// watch, which is up to 100 ms.
func elections(x *bench) {
	t := x.table("", "library")
	p := pace{moment: 120 * time.Millisecond, clients: 3, lasts: 2 * length()}
	x.compare([]library{elector, etcdElector, noonlock, rueidisLock, redisLock, etcdMutex}, []int{2}, p, func(name, _ string, h handed) {
		t.add(name, "ms", h.ms)
		t.add(name, "commands", h.commands)
		t.add(name, "to the one that had waited longest, %", h.inOrder)
	})
}

// A pace says how hand-overs follow each other.
type pace struct {
	moment  time.Duration // between the arrival of the last waiter and the release
	clients int           // the waiters use them in turn
	lasts   time.Duration
}

// compare measures hand-overs with some numbers of waiters.
func (x *bench) compare(libraries []library, waiters []int, p pace, add func(name, waiters string, h handed)) {
	on := make([]*server, len(libraries))
	for i, l := range libraries {
		on[i] = x.serve(l)
	}
	for r := range *repetitions {
		for _, n := range waiters {
			for i, l := range libraries {
				add(l.name, strconv.Itoa(n), x.handOver(l, on[i], fmt.Sprintf("%d-%d", n, r), n, p))
			}
		}
	}
}

// handed is what a hand-over cost, and the part (%) that went to the one that had waited longest.
type handed struct{ ms, commands, inOrder float64 }

// handOver lets a lock pass between waiters+1 goroutines. A holder waits until the one before it
// waits again, and for a moment, so that the order of arrival is known. That one waits again
// only after the hand-over: otherwise it could take the lock itself.
func (x *bench) handOver(l library, s *server, name string, waiters int, p pace) handed {
	ctx, cancel := context.WithCancel(x.ctx())
	defer cancel()
	all := make([]*client, p.clients)
	for i := range all {
		var err error
		all[i], err = l.open(s.addr, options{connections: waiters + 10})
		x.check(err)
	}
	holds := make([]hold, waiters+1)
	for i := range holds {
		holds[i] = all[i%p.clients].lock(ctx, name)
	}
	var mu sync.Mutex      // guards what is below
	var waiting []int      // in order of arrival
	var released time.Time // zero while the lock is held
	var took []float64     // ms
	inOrder := 0.0
	locked := func(do func()) {
		mu.Lock()
		defer mu.Unlock()
		do()
	}
	until := func(ready func() bool) {
		await(ctx, func() (is bool) {
			locked(func() { is = ready() })
			return is
		})
	}
	var wg sync.WaitGroup
	for i, h := range holds {
		wg.Go(func() {
			for ctx.Err() == nil {
				locked(func() { waiting = append(waiting, i) })
				err := h(ctx, func() {
					now := time.Now()
					locked(func() {
						at := slices.Index(waiting, i)
						waiting = slices.Delete(waiting, at, at+1)
						if released.IsZero() { // the first one had nobody before it
							return
						}
						took = append(took, now.Sub(released).Seconds()*1e3)
						if at == 0 {
							inOrder++
						}
						released = time.Time{}
					})
					until(func() bool { return len(waiting) >= waiters })
					sleep(ctx, p.moment)
					locked(func() { released = time.Now() })
				})
				if err != nil && ctx.Err() == nil {
					x.b.Error(l.name, err)
					return
				}
				until(func() bool { return released.Equal(time.Time{}) })
			}
		})
		sleep(ctx, 5*time.Millisecond/2)
	}
	until(func() bool { return len(took) > 0 })
	sleep(ctx, p.lasts)
	stop, before := s.count(), 0
	locked(func() { before = len(took) })
	sleep(ctx, p.lasts/2)
	sent, _ := stop()
	var h handed
	locked(func() {
		h = handed{median(slices.Clone(took)), sent / float64(len(took)-before), 100 * inOrder / float64(len(took))}
	})
	cancel()
	for _, c := range all {
		c.close()
	}
	wg.Wait()
	return h
}

// await polls until ready reports true, or ctx ends.
func await(ctx context.Context, ready func() bool) {
	for !ready() && ctx.Err() == nil {
		sleep(ctx, time.Millisecond/2)
	}
}
