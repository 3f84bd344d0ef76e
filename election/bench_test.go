package election_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// These measure an election on a real redis-server. Nothing here passes or fails
// by a time.

func benchClient(b *testing.B, addr, identity string) *lockcore.Client {
	b.Helper()
	rdb := redis.NewClient(options(addr))
	c, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
	must(b, err)
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
		_ = rdb.Close()
	})
	return c
}

// crowd runs electors until the benchmark is over.
type crowd struct {
	b      *testing.B
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newCrowd(b *testing.B) *crowd {
	b.Helper()
	c := &crowd{b: b}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	b.Cleanup(c.stop)
	return c
}

func (c *crowd) stop() {
	c.cancel()
	c.wg.Wait()
}

func (c *crowd) add(client *lockcore.Client, name string, started func(le *election.LeaderElector), cfg election.Config) *election.LeaderElector {
	c.b.Helper()
	var le *election.LeaderElector
	le, err := election.NewLeaderElector(client, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			if started != nil {
				started(le)
			}
			<-ctx.Done()
		},
		OnStoppedLeading: func() {},
	}, cfg)
	must(c.b, err)
	c.wg.Go(func() {
		if err := le.Run(c.ctx); err != nil {
			c.b.Error(err)
		}
	})
	return le
}

func waitFor(b *testing.B, condition func() bool) {
	b.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.Fatal("waited in vain")
		}
	}
}

func report(b *testing.B, samples []time.Duration, unit string) {
	b.Helper()
	slices.Sort(samples)
	for _, p := range []int{50, 99} {
		at := samples[min(len(samples)-1, len(samples)*p/100)]
		b.ReportMetric(float64(at)/float64(time.Millisecond), fmt.Sprintf("p%d-%s", p, unit))
	}
	b.ReportMetric(0, "ns/op")
}

// From Resign to the successor's OnStartedLeading, each replica on a Client of its
// own, with as many candidates as there are.
func BenchmarkResignToNextLeader(b *testing.B) {
	for _, replicas := range []int{2, 10, 100} {
		b.Run(fmt.Sprint("replicas=", replicas), func(b *testing.B) {
			s := servers.Redis(b)
			raw := redis.NewClient(options(s.Addr()))
			defer raw.Close()
			everybody := newCrowd(b)
			leads := make(chan *election.LeaderElector, replicas)
			for i := range replicas {
				everybody.add(benchClient(b, s.Addr(), fmt.Sprint("r", i)), electionName,
					func(le *election.LeaderElector) { leads <- le }, election.Config{})
			}
			inLine := func() bool { return raw.ZCard(b.Context(), key("queue")).Val() == int64(replicas-1) }
			leader := <-leads
			waitFor(b, inLine)
			var samples []time.Duration
			for b.Loop() {
				begin := time.Now()
				gone := make(chan error, 1)
				go func() { gone <- leader.Resign(context.Background()) }()
				next := <-leads
				samples = append(samples, time.Since(begin))
				must(b, <-gone)
				leader = next
				waitFor(b, inLine)
			}
			report(b, samples, "ms")
			everybody.stop()
		})
	}
}

// From the leader's last sign of life to the successor's OnStartedLeading, beyond
// LeaseDuration: the leader's network is cut as a SIGKILL cuts it. A leader that
// has just renewed is the worst case, and the bar is 100 ms beyond it.
func BenchmarkSuccessorOfADeadLeader(b *testing.B) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second} {
		b.Run(fmt.Sprint("ttl=", ttl), func(b *testing.B) {
			s := servers.Redis(b)
			raw := redis.NewClient(options(s.Addr()))
			defer raw.Close()
			var samples []time.Duration
			for b.Loop() {
				// Each time its own election, many at once: the waiting is long.
				const many = 40
				var mu sync.Mutex
				var wg sync.WaitGroup
				everybody := newCrowd(b)
				proxy, err := lockcoretest.StartProxy(s.Addr())
				must(b, err)
				dying, survivor := benchClient(b, proxy.Addr(), "dying"), benchClient(b, s.Addr(), "survivor")
				cfg := election.Config{LeaseDuration: ttl}
				died := make([]atomic.Int64, many)
				var leading atomic.Int64
				for i := range many {
					everybody.add(dying, fmt.Sprint("e", i), func(*election.LeaderElector) { leading.Add(1) }, cfg)
				}
				waitFor(b, func() bool { return leading.Load() == many })
				for i := range many {
					wg.Add(1)
					done := sync.OnceFunc(wg.Done)
					everybody.add(survivor, fmt.Sprint("e", i), func(*election.LeaderElector) {
						mu.Lock()
						defer mu.Unlock()
						samples = append(samples, time.Since(time.Unix(0, died[i].Load())))
						done()
					}, cfg)
				}
				waitFor(b, func() bool {
					n := 0
					for i := range many {
						n += int(raw.ZCard(b.Context(), fmt.Sprintf("noonlock:{election/e%d}:queue", i)).Val())
					}
					return n == many
				})
				now := time.Now().UnixNano()
				for i := range died {
					died[i].Store(now)
				}
				proxy.Faults().Partition()
				proxy.Faults().Cut()
				wg.Wait()
				everybody.cancel()
				proxy.Close()
				everybody.stop()
			}
			slices.Sort(samples)
			for i := range samples {
				samples[i] -= ttl
			}
			b.ReportMetric(float64(samples[len(samples)-1])/float64(time.Millisecond), "max-ms-beyond-ttl")
			report(b, samples, "ms-beyond-ttl")
		})
	}
}

// What 1,000 idle candidates of one election cost the server, in commands per
// second and as a part of 1,000/TTL; all that a Client sends counts.
func BenchmarkIdleCandidates(b *testing.B) {
	const many = 1000
	s := servers.Redis(b)
	raw := redis.NewClient(options(s.Addr()))
	defer raw.Close()
	everybody := newCrowd(b)
	cfg := election.Config{LeaseDuration: 3 * time.Second}
	for i := range 50 {
		c := benchClient(b, s.Addr(), fmt.Sprint("r", i))
		for range many / 50 {
			everybody.add(c, electionName, nil, cfg)
		}
	}
	waitFor(b, func() bool { return raw.ZCard(b.Context(), key("queue")).Val() == many-1 })
	for b.Loop() {
		before, begin := sent(b, raw), time.Now()
		<-time.After(20 * time.Second)
		perSecond := float64(sent(b, raw)-before) / time.Since(begin).Seconds()
		b.ReportMetric(perSecond, "commands/s")
		b.ReportMetric(perSecond/(many/cfg.LeaseDuration.Seconds()), "of-1000/TTL")
	}
	b.ReportMetric(0, "ns/op")
	everybody.stop()
}

// sent is how many commands the Clients have sent: what scripts do inside stands
// in commandstats, too, so only what they cannot do is counted.
func sent(b *testing.B, raw *redis.Client) (total int) {
	b.Helper()
	text, err := raw.Info(b.Context(), "commandstats").Result()
	must(b, err)
	for line := range strings.Lines(text) {
		for _, name := range []string{"evalsha", "eval", "subscribe", "unsubscribe", "ping", "hello"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				n := 0
				_, err := fmt.Sscanf(rest, "%d", &n)
				must(b, err)
				total += n
			}
		}
	}
	return total
}

// 2,000 elections with 3 candidates each in one process, on 3 Clients: goroutines
// beyond Run's callers, and what the heap and the whole process hold.
func BenchmarkTwoThousandElections(b *testing.B) {
	const elections = 2000
	s := servers.Redis(b)
	raw := redis.NewClient(options(s.Addr()))
	defer raw.Close()
	must(b, raw.Ping(b.Context()).Err())
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		everybody := newCrowd(b)
		var leading atomic.Int64
		begin := time.Now()
		for i := range 3 {
			c := benchClient(b, s.Addr(), fmt.Sprint("r", i))
			for k := range elections {
				everybody.add(c, fmt.Sprint("e", k), func(*election.LeaderElector) { leading.Add(1) }, election.Config{})
			}
		}
		waitFor(b, func() bool { return leading.Load() == elections && raw.DBSize(b.Context()).Val() == 5*elections })
		b.ReportMetric(time.Since(begin).Seconds(), "s-to-start")
		beforeCalls, at := sent(b, raw), time.Now()
		<-time.After(16 * time.Second)
		b.ReportMetric(float64(sent(b, raw)-beforeCalls)/time.Since(at).Seconds(), "commands/s")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines-3*elections), "goroutines-beyond-Run")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-heap")
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/(1<<20), "MB-heap+stacks")
		b.ReportMetric(float64(after.Sys-after.HeapReleased)/(1<<20), "MB-process")
		everybody.stop()
	}
	b.ReportMetric(0, "ns/op")
}
