package bench_test

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/lockcore"
)

// A shared is a set of partitions in a benchmark: who works on each, since when, and for how long none did.
type shared struct {
	x     *bench
	addr  string
	n     int
	mu    sync.Mutex
	at    map[int]string    // who works on a partition
	since map[int]time.Time // when the work on it ended
	gaps  []float64         // ms without a leader
	moves int
}

// work is that of a replica. gone: the replica is dead, so the end of its work is not noticed.
func (s *shared) work(who string, gone *atomic.Bool) func(context.Context, int) {
	return func(ctx context.Context, index int) {
		s.mu.Lock()
		if s.at[index] != "" {
			s.x.b.Errorf("%s leads %d beside %s", who, index, s.at[index])
		}
		if ended, ok := s.since[index]; ok {
			s.gaps = append(s.gaps, time.Since(ended).Seconds()*1e3)
		}
		s.at[index] = who
		s.moves++
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.at, index)
		if s.since[index] = time.Now(); gone.Load() {
			delete(s.since, index)
		}
	}
}

// start starts a replica with connections of its own. kill cuts these, as the end of its process does.
func (s *shared) start(who string, lease time.Duration) (stop, kill func()) {
	var gone atomic.Bool
	var mu sync.Mutex
	var conns []net.Conn
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if gone.Load() {
			return nil, errors.New("killed")
		}
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return c, err
	}})
	client, err := lockcore.New(rdb, lockcore.Config{Identity: who})
	s.x.check(err)
	ps, err := partition.NewRunner(client, "bench", s.n, s.work(who, &gone), partition.Config{LeaseDuration: lease, ShutdownTimeout: time.Second})
	s.x.check(err)
	ctx, cancel := context.WithCancel(s.x.ctx())
	done := make(chan error, 1)
	go func() { done <- ps.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.x.b.Error(err)
		}
		_ = client.Close(context.WithoutCancel(ctx))
		_ = rdb.Close()
	})
	return stop, func() {
		gone.Store(true)
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// settled waits until so many replicas have equal shares of all partitions.
func (s *shared) settled(replicas int) {
	until, stop := context.WithTimeout(s.x.ctx(), time.Minute)
	defer stop()
	await(until, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		counts := map[string]int{}
		for _, who := range s.at {
			counts[who]++
		}
		for _, n := range counts {
			if n < s.n/replicas || n > (s.n+replicas-1)/replicas {
				return false
			}
		}
		return len(s.at) == s.n && len(counts) == replicas
	})
	if until.Err() != nil {
		s.x.b.Error("the shares are not equal")
	}
}

// take returns how many partitions moved, and how long they had no leader, since the last call.
func (s *shared) take() (moves int, gaps []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moves, gaps = s.moves, s.gaps
	s.moves, s.gaps = 0, nil
	return moves, gaps
}

// partitions: 50 replicas share 1,000 partitions. Each of them is restarted, and the last one is killed. Beside
// it, a message that makes its receiver send a request.
func partitions(x *bench) {
	const n, replicas, lease = 1000, 50, 3 * time.Second
	t := x.table("", "1,000 partitions, 50 replicas")
	for range *repetitions {
		srv := x.serve(noonlock)
		s := &shared{x: x, addr: srv.addr, n: n, at: map[int]string{}, since: map[int]time.Time{}}
		stops, kills := make([]func(), replicas), make([]func(), replicas)
		name := 0
		start := func(i int) {
			name++
			stops[i], kills[i] = s.start("replica-"+strconv.Itoa(name), lease)
		}
		for i := range replicas {
			start(i)
		}
		s.settled(replicas)
		begun, _ := s.take()
		sleep(x.ctx(), lease)
		count := srv.count()
		sleep(x.ctx(), lease)
		sent, _ := count()
		var all []float64
		most := 0
		for i := range replicas {
			stops[i]()
			s.settled(replicas - 1)
			start(i)
			s.settled(replicas)
			moves, gaps := s.take()
			most, all = max(most, moves), append(all, gaps...)
		}
		killed := time.Now()
		kills[0]()
		s.settled(replicas - 1)
		took := time.Since(killed)
		const line = "a rolling restart"
		t.add(line, "moves of one restart, most", float64(most))
		t.add(line, "ms without a leader, median", median(all))
		t.add(line, "p99", quantile(all, .99))
		t.add(line, "longest", slices.Max(all))
		t.add(line, "s after a kill, lease 3 s", took.Seconds())
		t.add(line, "commands a second", sent/lease.Seconds())
		t.add(line, "moves while 50 start", float64(begun))
		for _, stop := range stops {
			stop()
		}
		one := x.roundTrips(srv)
		const raw = "raw go-redis: a message and a request"
		t.add(raw, "ms without a leader, median", median(one))
		t.add(raw, "p99", quantile(one, .99))
		t.add(raw, "longest", slices.Max(one))
		t.add(raw, "moves of one restart, most", math.NaN())
	}
}

// roundTrips returns how long (ms) a message takes that makes its receiver send a request.
func (x *bench) roundTrips(s *server) (took []float64) {
	rdb := newRedis(s.addr, options{})
	defer rdb.Close()
	heard := rdb.Subscribe(x.ctx(), "raw")
	defer heard.Close()
	_, err := heard.Receive(x.ctx())
	x.check(err)
	for range 2000 {
		began := time.Now()
		x.check(rdb.Publish(x.ctx(), "raw", "1").Err())
		_, err := heard.ReceiveMessage(x.ctx())
		x.check(err)
		x.check(rdb.Set(x.ctx(), "raw", 1, 0).Err())
		took = append(took, time.Since(began).Seconds()*1e3)
	}
	return took
}
