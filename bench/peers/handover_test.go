package peers_test

import (
	"context"
	"fmt"
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
	libraries := []library{noonlock, blpop, redisLock, redSync, rueidisLock, etcdMutex}
	p := pace{moment: 5 * time.Millisecond, clients: 2, lasts: length()}
	x.compare(libraries, []int{2, 10, 100, 500}, p, func(name string, waiters int, h handed) {
		column := figure(float64(waiters))
		took.add(name, column, median(h.took)*1e3)
		order.add(name, column, 100*float64(h.inOrder)/float64(len(h.took)))
		if h.counted > 0 {
			commands.add(name, column, h.sent/float64(h.counted))
		}
	})
	x.report = append(x.report, &plot{"peers-handover.svg", "Time of a handover by the number of waiters", "waiters", "ms", took})
}

// elections: a leader resigns, and two other candidates wait. Each has a client of its own. The
// locks are measured beside the electors. A leader leads for longer than etcd takes to begin a
// watch, which is up to 100 ms.
func elections(x *bench) {
	t := x.table("", "library")
	libraries := []library{elector, etcdElector, noonlock, rueidisLock, redisLock, etcdMutex}
	p := pace{moment: 120 * time.Millisecond, clients: 3, lasts: 2 * length()}
	x.compare(libraries, []int{2}, p, func(name string, _ int, h handed) {
		t.add(name, "ms", median(h.took)*1e3)
		if h.counted > 0 {
			t.add(name, "commands", h.sent/float64(h.counted))
		}
		t.add(name, "to the one that had waited longest, %", 100*float64(h.inOrder)/float64(len(h.took)))
	})
}

// A pace says how hand-overs follow each other.
type pace struct {
	moment  time.Duration // between the arrival of the last waiter and the release
	clients int           // the waiters use them in turn
	lasts   time.Duration
}

// compare measures hand-overs with some numbers of waiters.
func (x *bench) compare(libraries []library, waiters []int, p pace, add func(name string, waiters int, h handed)) {
	on := make([]*server, len(libraries))
	for i, l := range libraries {
		on[i] = x.serve(l)
	}
	for r := range *repetitions {
		for _, n := range waiters {
			for i, l := range libraries {
				if h := x.handOver(l, on[i], fmt.Sprintf("%d-%d", n, r), n, p); len(h.took) > 0 {
					add(l.name, n, h)
				}
			}
		}
	}
}

// handed is what a number of hand-overs cost.
type handed struct {
	took    []float64 // s
	inOrder int
	sent    float64 // commands of the counted hand-overs
	counted int
}

// A queue is who waits, and since when.
type queue struct {
	mu       sync.Mutex
	waiting  []int     // in order of arrival
	released time.Time // zero while the lock is held
	handed
}

func (q *queue) arrive(i int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, i)
}

func (q *queue) grant(i int) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for at, j := range q.waiting {
		if i != j {
			continue
		}
		q.waiting = append(q.waiting[:at], q.waiting[at+1:]...)
		if !q.released.IsZero() { // the first one had nobody before it
			q.took = append(q.took, now.Sub(q.released).Seconds())
			if at == 0 {
				q.inOrder++
			}
			q.released = time.Time{}
		}
		return
	}
}

func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = time.Now()
}

// free reports whether a holder has released the lock and there is no next one yet.
func (q *queue) free() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.released.IsZero()
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

func (q *queue) grants() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.took)
}

// handOver lets a lock pass between waiters+1 goroutines. A holder waits until the one before it
// waits again, and for a moment, so that the order of arrival is known. That one waits again
// only after the hand-over: otherwise it could take the lock itself.
func (x *bench) handOver(l library, s *server, name string, waiters int, p pace) handed {
	x.b.Helper()
	const poll = time.Millisecond / 2
	ctx, cancel := context.WithCancel(x.ctx())
	defer cancel()
	all := make([]*client, p.clients)
	for i := range all {
		var err error
		all[i], err = l.open(s.addr, options{connections: waiters + 10})
		x.check(err)
	}
	var q queue
	holds := make([]hold, waiters+1)
	for i := range holds {
		holds[i] = x.hold(ctx, all[i%p.clients], name)
	}
	var wg sync.WaitGroup
	for i, h := range holds {
		wg.Go(func() {
			for ctx.Err() == nil {
				q.arrive(i)
				err := h(ctx, func() {
					q.grant(i)
					for q.length() < waiters && ctx.Err() == nil {
						sleep(ctx, poll)
					}
					sleep(ctx, p.moment)
					q.release()
				})
				if err != nil && ctx.Err() == nil {
					x.b.Error(l.name, err)
					return
				}
				for q.free() && ctx.Err() == nil {
					sleep(ctx, poll)
				}
			}
		})
		sleep(ctx, 5*poll)
	}
	for began := time.Now(); q.grants() == 0 && time.Since(began) < time.Minute; {
		sleep(ctx, poll)
	}
	sleep(ctx, p.lasts)
	stop, before := s.count(), q.grants()
	sleep(ctx, p.lasts/2)
	sent, _ := stop()
	q.mu.Lock()
	result := q.handed
	q.mu.Unlock()
	result.sent, result.counted = sent, len(result.took)-before
	cancel()
	for _, c := range all {
		c.close()
	}
	wg.Wait()
	return result
}
